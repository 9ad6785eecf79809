"""The logprobs of an answer's tokens, and the likeliest tokens at each position, for the dialects that show them."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from seamlessflow.core.protocol.openai_chat import TokenLogprob, TopLogprob
from seamlessflow.data_plane.turns.rendering.token_bytes import REPLACEMENT, token_bytes
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

NO_TOKEN = -1  # an engine sends it where fewer tokens were possible


class ShownToken(NamedTuple):
    """One token: its text, and its bytes, which may be less than a character."""

    token_id: int
    text: str
    raw: bytes
    logprob: float


def likeliest(turn: Turn, choice: Choice, start: int) -> Iterator[list[ShownToken]]:
    """Yield for each token from number `start` on the likeliest ones at its position.

    A recorded answer, sent again to a retry, has only its own tokens.
    """
    progress = choice.progress
    tokenizer = turn.session.job.text.tokenizer
    num_top = progress.asked.num_top
    has_top = len(progress.top_ids) == len(progress.token_ids) * num_top
    source = (progress.top_ids, progress.top_logprobs) if has_top else (progress.token_ids, progress.logprobs)
    ids, values = (
        np.frombuffer(bytes(raw), dtype=kind).reshape(progress.num_tokens, -1)[start:]
        for raw, kind in zip(source, ("<i4", "<f4"), strict=True)
    )
    for number, (row, logprobs) in enumerate(zip(ids, values, strict=True), start):
        row, logprobs = row[row != NO_TOKEN].tolist(), logprobs[row != NO_TOKEN].tolist()
        yield shown_tokens(tokenizer, row, logprobs, num_first=0 if number else len(row))


def shown_tokens(
    tokenizer: Tokenizer, ids: list[int], logprobs: list[float], *, num_first: int = 0
) -> list[ShownToken]:
    """Return the tokens with their texts. num_first: how many of them begin the answer, or may begin it.

    Tokenizers of the SentencePiece kind drop the space with which a text begins. So a token is decoded behind another,
    itself, unless it begins the answer.
    """
    decode = partial(tokenizer.decode_batch, skip_special_tokens=False)
    alone, twice = decode([[token] for token in ids]), decode([[token] * 2 for token in ids[num_first:]])
    texts = alone[:num_first] + list(map(_behind, alone[num_first:], twice))
    return [
        ShownToken(token, text, token_bytes(tokenizer, token, text), logprob)
        for token, text, logprob in zip(ids, texts, logprobs, strict=True)
    ]


def _behind(alone: str, twice: str) -> str:
    """Return a token's text behind another one, from its text alone and twice. Halves of characters stay apart."""
    return twice[len(alone) :] if twice.startswith(alone) and REPLACEMENT not in alone else alone


def token_logprobs(turn: Turn, choice: Choice, start: int) -> list[TokenLogprob]:
    """Return the logprobs of an answer's tokens from number `start` on, with the likeliest ones that were asked for."""
    ids = np.frombuffer(bytes(choice.progress.token_ids), dtype="<i4")[start:].tolist()
    values = np.frombuffer(bytes(choice.progress.logprobs), dtype="<f4")[start:].tolist()
    has_top = bool(choice.progress.asked.num_top)
    tops = likeliest(turn, choice, start) if has_top else ([] for _ in ids)
    return [
        TokenLogprob(
            token=shown.text,
            logprob=shown.logprob,
            bytes=list(shown.raw),
            top_logprobs=[_top(one) for one in likeliest_here],
        )
        for shown, likeliest_here in zip(
            shown_tokens(turn.session.job.text.tokenizer, ids, values, num_first=0 if start else 1),
            tops,
            strict=True,
        )
    ]


def _top(shown: ShownToken) -> TopLogprob:
    return TopLogprob(token=shown.text, logprob=shown.logprob, bytes=list(shown.raw))
