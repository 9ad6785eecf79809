"""A committed turn as it was: for the retry of a client that never saw its end."""

from uuid import UUID

from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.core.trajectory.resume import AnswerProgress, FinishReason
from seamlessflow.data_plane.store.protocols import TurnStore
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession


async def recorded_choices(store: TurnStore, session: LiveSession, turn_id: UUID) -> list[AnswerProgress]:
    """The finished answers of a turn, in the order of their choices."""
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
