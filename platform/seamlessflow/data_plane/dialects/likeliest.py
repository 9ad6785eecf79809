"""The likeliest tokens in each place of an answer, for the dialects that show them."""

from collections.abc import Iterator

import numpy as np

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
