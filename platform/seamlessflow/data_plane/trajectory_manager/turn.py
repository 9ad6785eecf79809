"""One turn: a request's answers grow, are turned into deltas for the client, and are committed.

States: planned → growing → committed, or abandoned (the client vanished) and then continued by a marked retry.
Invariant: `commit` returns only when every token delivered is durable, with its version and logprob.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import NodeKind
from seamlessflow.core.trajectory.resume import AnswerProgress, FinishReason
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.rendering.answer_text import AnswerText
from seamlessflow.data_plane.rendering.output_parser import Delta
from seamlessflow.data_plane.rollout_manager.manager import RolloutManager
from seamlessflow.data_plane.store.node_rows import NodeFacts, NodeRow
from seamlessflow.data_plane.store.writer import TurnWriter
from seamlessflow.data_plane.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.trajectory_manager.plan import TurnPlan

HANDOVER_FLAG = "handover_at"  # in an answer's flags: how many tokens it had when it changed engines


@dataclass(slots=True)
class Choice:
    """One of the n answers."""

    index: int
    progress: AnswerProgress
    text: AnswerText
    call_ids: list[str] = field(default_factory=list)

    @property
    def finish_reason(self) -> str:
        if self.progress.finish_reason is FinishReason.LENGTH:
            return "length"
        return "tool_calls" if self.text.parsed.tool_calls else "stop"

    def call_id(self, number: int) -> str:
        """Identifier of tool call `number`; the same in the stream and in the record."""
        while len(self.call_ids) <= number:
            self.call_ids.append(f"call_{secrets.token_hex(12)}")
        return self.call_ids[number]

    def message(self) -> dict[str, Any]:
        """The assistant message as delivered."""
        parsed = self.text.parsed
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content or None}
        if not parsed.tool_calls:
            message["content"] = parsed.content
        else:
            message["tool_calls"] = [
                {
                    "id": self.call_id(number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for number, call in enumerate(parsed.tool_calls)
            ]
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        return message


@dataclass(slots=True)
class Turn:
    session: LiveSession
    plan: TurnPlan
    choices: list[Choice]
    turn_id: UUID
    request_digest: bytes
    flags: dict[str, Any]
    started_s: float

    async def grow(
        self, choice: Choice, manager: RolloutManager, *, is_streamed: bool
    ) -> AsyncGenerator[list[Delta], None]:
        """Deltas of one answer, to its end. Leaving early aborts the engine's request."""
        progress, text = choice.progress, choice.text
        if progress.token_ids:  # a retry goes on from what its predecessor had
            yield text.push(bytes(progress.token_ids))
        pieces = manager.grow(progress, self.session.sampling, self.session.affinity, is_streamed=is_streamed)
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

    async def commit(self, writer: TurnWriter, clock: Callable[[], float]) -> None:
        """Make the turn durable. Raises TurnRefused."""
        rows = self._rows(duration_s=clock() - self.started_s, is_partial=False)
        self.session.turns[self.request_digest] = self.turn_id
        storing = asyncio.ensure_future(writer.commit(rows))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            await storing  # the client may leave now, but its retry must find the turn recorded
            raise
        self._count()

    def partial_rows(self, *, duration_s: float) -> list[NodeRow]:
        """Rows of a turn that nobody came back for: recorded, never trained."""
        return self._rows(duration_s=duration_s, is_partial=True)

    def _rows(self, *, duration_s: float, is_partial: bool) -> list[NodeRow]:
        rows: list[NodeRow] = []
        plan, tree = self.plan, self.session.tree
        prompt = tree.prompt_child(plan.parent, plan.digests, plan.context)
        if prompt is None:
            rows.append(self._prompt_row())
            prompt = rows[0].node
        rows += [
            self._answer_row(prompt.index, choice, duration_s=duration_s, is_partial=is_partial)
            for choice in self.choices
        ]
        return rows

    def _prompt_row(self) -> NodeRow:
        plan = self.plan
        is_root = plan.kind is NodeKind.ROOT
        return self.session.add_node(
            parent=plan.parent,
            kind=plan.kind,
            token_ids=self.session.job.shared_prompt(plan.new_ids) if is_root else plan.new_ids,
            facts=NodeFacts(
                messages=[dict(message) for message in plan.messages],
                turn_id=self.turn_id,
                drift=plan.drift,
                cause=plan.cause,
            ),
            digests=plan.digests,
            context=plan.context,
        )

    def _answer_row(self, parent: int, choice: Choice, *, duration_s: float, is_partial: bool) -> NodeRow:
        progress, message = choice.progress, choice.message()
        facts = NodeFacts(
            messages=[message],
            turn_id=self.turn_id,
            finish_reason="abort" if is_partial else choice.finish_reason,
            request_digest=self.request_digest,
            flags=self.flags | ({HANDOVER_FLAG: progress.handover_at} if progress.handover_at else {}),
            num_handovers=progress.num_handovers,
            num_continuations=progress.num_continuations,
            max_gap_s=progress.max_gap_s,
            duration_s=duration_s,
            num_wasted_tokens=progress.num_wasted_tokens,
        )
        return self.session.add_node(
            parent=parent,
            kind=NodeKind.SAMPLED,
            token_ids=bytes(progress.token_ids),
            facts=facts,
            digests=message_digests([message]),
            logprobs=bytes(progress.logprobs),
            spans=progress.spans,
            is_partial=is_partial,
        )

    def _count(self) -> None:
        metrics.TURNS.inc()
        metrics.DRIFTS.labels(self.plan.drift.value).inc()
        for choice in self.choices:
            metrics.SAMPLED_TOKENS.inc(choice.progress.num_tokens)
            if self.session.evaluation_version is not None:
                metrics.EVALUATION_TOKENS.inc(choice.progress.num_tokens)
            metrics.WASTED_TOKENS.inc(choice.progress.num_wasted_tokens)
            metrics.MAX_GAP.observe(choice.progress.max_gap_s)
