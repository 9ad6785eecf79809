"""Reads `structured_outputs`: takes a request and returns a matcher that stands where the answer goes on.

The tokenizer is read from the model folder at the first guided request, and the library is imported then, so an engine
without such requests loads neither. Matchers are made in threads, because a large schema takes a while.
"""

import threading
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

from seamlessflow.core.guidance.guide import InvalidGuideError, guide_make
from seamlessflow.core.guidance.masks import MatcherFailedError, TokenNotAllowedError
from seamlessflow_workers.rollout.serving.request import GenerateRequest, InvalidRequestError

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import Matcher, Vocabulary

GUIDE_FIELD = "sampling_params.structured_outputs"
PREFIX_FIELD = "guided_prefix"


class GuideReader:
    def __init__(self, folder: Path | None, *, num_tokens: int, eos_token_ids: Set[int]) -> None:
        """`folder` is the model's; None if this engine does not guide answers."""
        self._folder = folder
        self._num_tokens = num_tokens
        self._eos_token_ids = eos_token_ids
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None

    def matcher(self, body: GenerateRequest) -> "Matcher":
        """Return the matcher after the tokens that the answer has already. Raises InvalidRequestError."""
        params = body.sampling_params
        try:
            guide = guide_make(
                params.structured_outputs or {},
                end_token_ids=[*self._eos_token_ids, *(params.stop_token_ids or ())],
            )
            with self._lock:
                matcher = self._read_vocabulary().matcher(guide)
            matcher.mask()  # the first one builds most of the lexer, here and not in the engine's thread
        except (InvalidGuideError, MatcherFailedError) as error:
            raise InvalidRequestError(field=GUIDE_FIELD, message=f"structured_outputs: {error}") from error
        if body.guided_prefix:
            _replay(matcher, body.token_ids[-body.guided_prefix :])
        return matcher

    def _read_vocabulary(self) -> "Vocabulary":
        from seamlessflow.core.guidance.matching import Vocabulary

        if self._vocabulary is None:
            if self._folder is None:
                raise InvalidGuideError("this engine does not guide answers")
            try:
                tokenizer = (self._folder / "tokenizer.json").read_text()
            except OSError as error:
                raise InvalidGuideError("the model folder has no tokenizer.json") from error
            self._vocabulary = Vocabulary(tokenizer, num_tokens=self._num_tokens)
        return self._vocabulary


def _replay(matcher: "Matcher", token_ids: list[int]) -> None:
    try:
        matcher.replay(token_ids)
        matcher.mask()
    except (TokenNotAllowedError, MatcherFailedError) as error:
        message = f"guided_prefix: the last {len(token_ids)} tokens do not begin such an answer: {error}"
        raise InvalidRequestError(field=PREFIX_FIELD, message=message) from error
    if matcher.is_ended:
        raise InvalidRequestError(
            field=PREFIX_FIELD, message="guided_prefix: the guided answer has ended already"
        )
