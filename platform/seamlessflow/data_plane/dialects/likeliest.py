"""The logprobs of an answer's tokens, and the likeliest tokens in each place, for the dialects that show them."""

from collections.abc import Iterator

import numpy as np

from seamlessflow.core.protocol.openai_chat import TokenLogprob, TopLogprob
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

NO_TOKEN = -1  # an engine's word for a place where fewer tokens were possible


def likeliest(turn: Turn, choice: Choice, start: int) -> Iterator[list[tuple[str, float]]]:
    """Yield for each token from number `start` on the likeliest ones in its place as (text, logprob).

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
    for row, logprobs in zip(ids, values, strict=True):
        is_known = row != NO_TOKEN
        texts = tokenizer.decode_batch(
            [[token] for token in row[is_known].tolist()], skip_special_tokens=False
        )
        yield list(zip(texts, logprobs[is_known].tolist(), strict=True))


def token_logprobs(turn: Turn, choice: Choice, start: int) -> list[TokenLogprob]:
    """Return the logprobs of an answer's tokens from number `start` on, with the likeliest ones that were asked for."""
    ids = np.frombuffer(bytes(choice.progress.token_ids), dtype="<i4")[start:].tolist()
    values = np.frombuffer(bytes(choice.progress.logprobs), dtype="<f4")[start:].tolist()
    tokens = turn.session.job.text.tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=False)
    has_top = bool(choice.progress.asked.num_top)
    tops = likeliest(turn, choice, start) if has_top else ([] for _ in ids)
    return [
        TokenLogprob(
            token=token,
            logprob=value,
            bytes=list(token.encode()),
            top_logprobs=[_top(*one) for one in likeliest_here],
        )
        for token, value, likeliest_here in zip(tokens, values, tops, strict=True)
    ]


def _top(token: str, logprob: float) -> TopLogprob:
    return TopLogprob(token=token, logprob=logprob, bytes=list(token.encode()))
