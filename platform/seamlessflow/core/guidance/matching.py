"""Turns guides into masks over the tokens of one model, by the library llguidance.

A `Vocabulary` is made once per model from the text of its `tokenizer.json`. A `Matcher` follows one answer: it returns
the mask of the next token and takes the token that was sampled. Invariants: masks are a function of the tokenizer, the
guide, the tokens so far and `LIBRARY`, and of nothing else, so any process with these four computes the same masks; a
text sampled from the masks and ended by an end token belongs to the guide's language. The limits count work, not time:
they belong to that function.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property

import llguidance
import numpy as np

from seamlessflow.core.guidance.guide import (
    JSON_FORM,
    Guide,
    GuideKind,
    InvalidGuideError,
    literal_pattern,
)
from seamlessflow.core.guidance.masks import GuidedBy, MatcherFailedError, PackedMask, TokenNotAllowedError

# The number rises when the same guide gets other masks: a trainer then leaves answers of the older ones out.
LIBRARY = f"llguidance {llguidance.__version__}, rules 2"
# By the rates that llguidance documents: 20 ms to build a guide's lexer, and 15 ms for one mask.
# Work and not time: a limit in seconds would make masks depend on the machine.
_LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_items_in_row=2_000,
    max_lexer_states=50_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
_NUM_TOKENIZERS_KEPT = 4  # per vocabulary; each set of end tokens needs one
_MAX_MESSAGE_CHARACTERS = 300


class Vocabulary:
    """The tokens of a model. Not thread-safe."""

    def __init__(self, tokenizer_json: str, *, num_tokens: int) -> None:
        """`num_tokens` is the length of the model's logits, which may exceed the tokenizer's own tokens."""
        self._tokenizer_json = tokenizer_json
        self.digest = hashlib.sha256(tokenizer_json.encode()).hexdigest()
        self.num_tokens = num_tokens
        self._tokenizers: OrderedDict[tuple[int, ...], llguidance.LLTokenizer] = OrderedDict()

    def matcher(self, guide: Guide) -> "Matcher":
        """Return a matcher at the beginning of an answer. Raises InvalidGuideError."""
        tokenizer = self._tokenizer(guide.end_token_ids)
        self._check_literals(guide)
        matcher = llguidance.LLMatcher(tokenizer, _grammar(guide), log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise InvalidGuideError(f"{guide.kind} cannot be followed: {_first_line(matcher.get_error())}")
        return Matcher(matcher, guide, GuidedBy(LIBRARY, self.digest, guide.end_token_ids))

    def special_id(self, text: str) -> int | None:
        """Return the token of `text` if no ordinary text contains it, so that a grammar names it by its number."""
        return self._special_ids.get(text)

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        added = json.loads(self._tokenizer_json).get("added_tokens") or []
        tokenizer = self._tokenizer((0,))
        return {token["content"]: token["id"] for token in added if tokenizer.is_special_token(token["id"])}

    def _check_literals(self, guide: Guide) -> None:
        """Refuse what can never be generated as text; grammars name special tokens, so they may contain them."""
        if guide.kind not in (GuideKind.CHOICE, GuideKind.REGEX):
            return
        found = sorted(special for special in self._special_ids if special in guide.text)
        if found:
            raise InvalidGuideError(f"{guide.kind} contains {found[0]}, a special token of this model")

    def _tokenizer(self, end_token_ids: tuple[int, ...]) -> llguidance.LLTokenizer:
        tokenizer = self._tokenizers.pop(end_token_ids, None)
        if tokenizer is None:
            try:
                tokenizer = llguidance.LLTokenizer(
                    self._tokenizer_json, n_vocab=self.num_tokens, eos_token=list(end_token_ids)
                )
            except ValueError as error:
                message = f"this model's tokenizer cannot guide an answer: {_first_line(str(error))}"
                raise InvalidGuideError(message) from error
        self._tokenizers[end_token_ids] = tokenizer
        if len(self._tokenizers) > _NUM_TOKENIZERS_KEPT:
            self._tokenizers.popitem(last=False)
        return tokenizer


class Matcher:
    """Follows one answer: growing → ended, once it took an end token. Then it takes no further token."""

    def __init__(self, matcher: llguidance.LLMatcher, guide: Guide, guided_by: GuidedBy) -> None:
        self._matcher = matcher
        self.guide = guide
        self.guided_by = guided_by
        self._end_token_ids = frozenset(guided_by.end_token_ids)
        self.is_ended = False

    def mask(self) -> PackedMask:
        """Return which tokens may come next, one bit each, padded to whole bytes. Raises MatcherFailedError."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise MatcherFailedError(_first_line(self._matcher.get_error()))
        if not packed.any():
            raise MatcherFailedError("the guide allows no token here")
        return packed

    def consume(self, token_id: int) -> None:
        """Take the next token. Raises TokenNotAllowedError, and then takes nothing."""
        if self.is_ended:
            raise TokenNotAllowedError(f"the answer has ended, so it cannot continue with token {token_id}")
        if token_id in self._end_token_ids and self._matcher.is_accepting():
            self.is_ended = True
        elif token_id in self._end_token_ids or not self._matcher.try_consume_tokens([token_id]):
            raise TokenNotAllowedError(f"the guide does not allow token {token_id} here")

    def replay(self, token_ids: Iterable[int]) -> None:
        """Take the tokens that an answer has already. Raises TokenNotAllowedError at the first that does not fit."""
        for token_id in token_ids:
            self.consume(token_id)

    def rollback(self, num_tokens: int) -> None:
        """Forget the last tokens, of which there must be as many."""
        if num_tokens and self.is_ended:
            self.is_ended = False
            num_tokens -= 1
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise ValueError(f"cannot go back {num_tokens} tokens: {_first_line(self._matcher.get_error())}")

    @property
    def is_complete(self) -> bool:
        """Whether the tokens so far are a text of the guide's language."""
        return self._matcher.is_accepting()


def num_tokens_of(tokenizer_json: str) -> int:
    """Return how many tokens a tokenizer needs, from the text of its `tokenizer.json`."""
    content = json.loads(tokenizer_json)
    vocabulary = content["model"]["vocab"]
    ids: list[int] = [token["id"] for token in content.get("added_tokens") or ()]
    ids += vocabulary.values() if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
    return max(ids) + 1


def _grammar(guide: Guide) -> str:
    match guide.kind:
        case GuideKind.JSON:
            return llguidance.LLMatcher.grammar_from_json_schema(guide.text, overrides=JSON_FORM)
        case GuideKind.REGEX:
            return llguidance.LLMatcher.grammar_from_regex(guide.text)
        case GuideKind.GRAMMAR:
            return llguidance.LLMatcher.grammar_from_lark(guide.text)
        case GuideKind.CHOICE:
            options = "|".join(map(literal_pattern, json.loads(guide.text)))
            return llguidance.LLMatcher.grammar_from_regex(f"({options})")


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0][:_MAX_MESSAGE_CHARACTERS]
