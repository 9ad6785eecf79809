"""A turn from plan to record: its answers grow, become deltas for the client, and are committed or read back.

States: planned → growing → committed, or abandoned (the client disconnected) and then continued by a retry.
Invariant: `turn_commit` returns only when every delivered token is durable, with its version and logprob.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any
from uuid import UUID

from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.messages import digest_without_text, message_digests
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.turns.node_rows import RESUMED_FLAG, NodeFacts, NodeRow
from seamlessflow.data_plane.store.turns.protocol import TurnStore
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta
from seamlessflow.data_plane.turns.rollout_manager import STREAM_ABOVE_TOKENS, RolloutManager
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import (
    UNFINISHED,
    UNTRAINED_FLAG,
)
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveSession, Turn

HANDOVER_FLAG = "handover_at"  # in an answer's flags: how many tokens it had when it changed engines


async def turn_grow(
    turn: Turn, choice: Choice, manager: RolloutManager, *, is_streamed: bool = True
) -> AsyncGenerator[list[Delta], None]:
    """Yield the deltas of one answer until it ends. Closing the iterator early aborts the engine's request.

    is_streamed: otherwise an engine sends its answer whole, unless it is so long that its loss would cost too much.
    """
    progress, text = choice.progress, choice.text
    if progress.token_ids:  # a retry continues from the tokens of the abandoned turn
        yield text.push(bytes(progress.token_ids))
    pieces = manager.grow(
        progress,
        turn.session.sampling,
        turn.session.affinity,
        turn.wait,
        is_streamed=is_streamed or progress.max_tokens > STREAM_ABOVE_TOKENS,
    )
    async with aclosing(pieces):
        if not text.is_stopped():
            async for piece in pieces:
                yield text.push(piece.token_ids)
                if text.is_stopped():
                    break
    deltas = text.finish()
    if text.num_kept_tokens is not None:
        progress.cut(text.num_kept_tokens)
    yield deltas


async def turn_commit(turn: Turn, store: TurnStore, clock: Callable[[], float]) -> None:
    """Make the turn durable. Raises TurnRefused."""
    rows = _rows(turn, duration_s=clock() - turn.started_s, is_partial=False)
    turn.session.turns[turn.request_digest] = turn.turn_id
    turn.is_recorded = True
    turn.session.use.record()
    storing = asyncio.ensure_future(store.commit(rows))
    try:
        await asyncio.shield(storing)
    except asyncio.CancelledError:
        await storing  # the client may disconnect now, but its retry must find the turn recorded
        raise
    _count(turn)


async def recorded_choices(store: TurnStore, session: LiveSession, turn_id: UUID) -> list[AnswerProgress]:
    """Read the finished answers of a committed turn, in the order of their choices, for a retry of its request."""
    return [
        AnswerProgress(
            prompt_ids=b"",
            max_tokens=row.node.num_tokens,
            token_ids=bytearray(row.node.token_ids),
            logprobs=bytearray(row.node.logprobs),
            spans=row.node.spans,
            finish_reason=FinishReason.LENGTH if row.facts.finish_reason == "length" else FinishReason.STOP,
        )
        for row in await store.nodes(session.key)
        if row.facts.turn_id == turn_id and row.node.kind is NodeKind.SAMPLED
    ]


def turn_partial_rows(turn: Turn, *, duration_s: float) -> list[NodeRow]:
    """Return the rows of a turn whose client never retried; it is recorded and never trained."""
    return _rows(turn, duration_s=duration_s, is_partial=True)


def _rows(turn: Turn, *, duration_s: float, is_partial: bool) -> list[NodeRow]:
    rows: list[NodeRow] = []
    turn.session.use.num_tokens += sum(choice.progress.num_tokens for choice in turn.choices)
    plan, tree = turn.plan, turn.session.tree
    prompt = tree.prompt_child(plan.parent, plan.digests, plan.context)
    if prompt is None:
        rows.append(_prompt_row(turn))
        prompt = rows[0].node
    rows += [
        _answer_row(turn, prompt.index, choice, duration_s=duration_s, is_partial=is_partial)
        for choice in turn.choices
    ]
    return rows


def _prompt_row(turn: Turn) -> NodeRow:
    plan = turn.plan
    is_root = plan.kind is NodeKind.ROOT
    return turn.session.add_node(
        parent=plan.parent,
        kind=plan.kind,
        token_ids=turn.session.job.shared_prompt(plan.new_ids) if is_root else plan.new_ids,
        facts=NodeFacts(
            messages=[dict(message) for message in plan.messages],
            turn_id=turn.turn_id,
            drift=plan.drift,
            cause=plan.cause,
        ),
        digests=plan.digests,
        context=plan.context,
    )


def _answer_row(turn: Turn, parent: int, choice: Choice, *, duration_s: float, is_partial: bool) -> NodeRow:
    progress, message = choice.progress, choice.message()
    facts = NodeFacts(
        messages=[message],
        turn_id=turn.turn_id,
        finish_reason=UNFINISHED if progress.is_unfinished() else choice.finish_reason,
        request_digest=turn.request_digest,
        flags=turn.flags | _answer_flags(progress),
        num_handovers=progress.num_handovers,
        num_continuations=progress.num_continuations,
        max_gap_s=progress.max_gap_s,
        duration_s=duration_s,
        num_wasted_tokens=progress.num_wasted_tokens,
    )
    return turn.session.add_node(
        parent=parent,
        kind=NodeKind.SAMPLED,
        token_ids=bytes(progress.token_ids),
        facts=facts,
        digests=message_digests([message]),
        logprobs=bytes(progress.logprobs),
        spans=progress.spans,
        is_partial=is_partial,
        loss_mask=bytes(-(-progress.num_tokens // 8)) if progress.untrained_because else None,
        guided=progress.guided,
        calls=digest_without_text(message),
    )


def _answer_flags(progress: AnswerProgress) -> dict[str, Any]:
    flags: dict[str, Any] = {HANDOVER_FLAG: progress.handover_at} if progress.handover_at else {}
    if because := progress.untrained_because:
        flags[UNTRAINED_FLAG] = because
    return flags


def _count(turn: Turn) -> None:
    metrics.TURNS.inc()
    metrics.DRIFTS.labels(turn.plan.drift.value).inc()
    if RESUMED_FLAG in turn.flags:
        metrics.RETRIES.labels("resumed").inc()
        return  # its tokens were counted when they were sampled
    for choice in turn.choices:
        metrics.SAMPLED_TOKENS.inc(choice.progress.num_tokens)
        if turn.session.evaluation_version is not None:
            metrics.EVALUATION_TOKENS.inc(choice.progress.num_tokens)
        metrics.WASTED_TOKENS.inc(choice.progress.num_wasted_tokens)
        metrics.MAX_GAP.observe(choice.progress.max_gap_s)
