"""A committed turn as it was: for the retry of a client that never saw its end."""

from uuid import UUID

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.core.trajectory.resume import AnswerProgress, FinishReason
from seamlessflow.data_plane.store.turns.node_rows import nodes_read
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry


async def recorded_choices(registry: Registry, session: LiveSession, turn_id: UUID) -> list[AnswerProgress]:
    """The finished answers of a turn, in the order of their choices."""
    key = session.key
    async with registry.pool.connection() as connection:
        rows = (await nodes_read(connection, [(key.month, key.session_id)]))[key.session_id]
    return [
        AnswerProgress(
            prompt_ids=b"",
            max_tokens=row.node.num_tokens,
            token_ids=bytearray(row.node.token_ids),
            logprobs=bytearray(row.node.logprobs),
            spans=row.node.spans,
            finish_reason=FinishReason.LENGTH if row.facts.finish_reason == "length" else FinishReason.STOP,
        )
        for row in rows
        if row.facts.turn_id == turn_id and row.node.kind is NodeKind.SAMPLED
    ]
