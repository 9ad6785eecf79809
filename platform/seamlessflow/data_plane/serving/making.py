"""What a request begins: a new turn, one that it asks for again, or one that goes on with answers begun before.

In: a request of a session. Out: its turn, which is counted in the session's use until it ends. Answers begun before are
those of a turn whose client left, if it asked for the same, and those that the slot's earlier attempts recorded.
Invariant: each of them is given once.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from seamlessflow.core.guidance.guide import Guide
from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.serving.bounds import SessionBounds
from seamlessflow.data_plane.serving.planning import TurnPlanner, turn_budget
from seamlessflow.data_plane.store.connection import new_id
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.trajectory_manager.earlier_answers import Begun, EarlierAnswers, Wanted
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveSession, Turn
from seamlessflow.data_plane.turns.trajectory_manager.plan import RawPrompt, TurnPlan
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry


class TurnMaker:
    def __init__(
        self, registry: Registry, planner: TurnPlanner, bounds: SessionBounds, clock: Callable[[], float]
    ) -> None:
        self._registry = registry
        self._planner = planner
        self._bounds = bounds
        self._clock = clock

    async def turn(
        self, session: LiveSession, request: TurnRequest[Any], digest: bytes, *, is_retry: bool
    ) -> Turn:
        """Return the turn that the request begins, or the earlier one that it asks for again."""
        earlier = await self._registry.earlier(session)
        plan = await self._planner.plan(session, request.conversation, request.demand, request.stop)
        budget = self._bounds.budget(
            session, request.num_choices, turn_budget(session, plan, request.max_tokens)
        )
        wanted = _wanted(session, request, plan, budget)
        recorded_id = session.undelivered.pop(digest, None)
        if recorded_id is None and is_retry and digest not in session.partials:
            recorded_id = session.turns.get(digest)
        if recorded_id is not None:
            return self._turn(session, request, plan, wanted.begun(), recorded_id, digest, is_recorded=True)
        session.partial_count_no_longer(digest)  # it is the same turn
        self._bounds.check_next(session)
        self._bounds.check_answers(session, request.num_choices)
        kept = session.take_partial(digest)
        begun = kept.turn.left() if kept else self._begun(session, wanted, earlier)
        turn_id = kept.turn.turn_id if kept else new_id()
        if kept:
            metrics.RETRIES.labels("continued").inc()
        turn = self._turn(session, request, plan, begun or wanted.begun(), turn_id, digest)
        turn.count()
        return turn

    def _begun(self, session: LiveSession, wanted: Wanted, earlier: EarlierAnswers | None) -> Begun | None:
        """Return what an earlier attempt of the slot has sampled for this request."""
        if earlier is None:
            return None
        unclaimed = self._registry.unclaimed
        return earlier.take(wanted) or unclaimed.take(session.slot_key, wanted)

    def _turn(
        self,
        session: LiveSession,
        request: TurnRequest[Any],
        plan: TurnPlan,
        begun: Begun,
        turn_id: UUID,
        digest: bytes,
        *,
        is_recorded: bool = False,
    ) -> Turn:
        call_seed = session.call_seed(plan)
        choices = [
            Choice(index, progress, _answer_text(session, request, plan), call_seed)
            for index, progress in enumerate(begun.progresses)
        ]
        flags = {**request.flags, **begun.flags}
        return Turn(session, plan, choices, turn_id, digest, flags, self._clock(), is_recorded, begun=begun)


def _wanted(session: LiveSession, request: TurnRequest[Any], plan: TurnPlan, max_tokens: int) -> Wanted:
    guide = None if plan.guide is None else Guide(*plan.guide, session.job.text.end_ids)
    return Wanted(
        prompt_ids=plan.prompt_ids,
        asked=AskedSampling(guide, request.num_top, request.reshaping),
        max_tokens=max_tokens,
        num_choices=request.num_choices,
        end_ids=session.job.text.end_ids,
        stop=request.stop,
        has_one_call=request.has_one_call or plan.has_one_call,
    )


def _answer_text(session: LiveSession, request: TurnRequest[Any], plan: TurnPlan) -> AnswerText:
    conversation = request.conversation
    return AnswerText(
        session.job.text,
        stop=request.stop,
        tools=None if isinstance(conversation, RawPrompt) else conversation.tools,
        starts_in_reasoning=plan.starts_in_reasoning,
        is_plain=isinstance(conversation, RawPrompt),
        has_one_call=plan.has_one_call or request.has_one_call,
    )
