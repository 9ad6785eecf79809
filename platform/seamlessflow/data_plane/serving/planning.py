"""Plans a turn: joins a request to its session's tree, and bounds its answer by the model's context."""

import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from seamlessflow.core.guidance.answer_grammar import ToolDemand, calls_check
from seamlessflow.core.guidance.guide import InvalidGuideError
from seamlessflow.core.job_spec import EngineKind, ThinkingRetention
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.dialects.demands import is_soft
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import ContextTooLong, bad_request
from seamlessflow.data_plane.store.turns.protocol import TurnStore
from seamlessflow.data_plane.turns.rendering.prompt import (
    AskedPrompt,
    Prompt,
    PromptRequest,
    TailNotEnough,
    asked_prompt,
    request_kind,
    request_of_tail,
)
from seamlessflow.data_plane.turns.rendering.tails import MAX_KINDS
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob, LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.plan import (
    Conversation,
    RawPrompt,
    TurnPlan,
    raw_plan,
    turn_match,
    turn_plan,
)
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns

# A shorter request is not worth the question which kind of turn it is.
TAILS_ABOVE_BYTES = 16 << 10


MakePrompt = Callable[[UUID, AskedPrompt], Coroutine[Any, Any, Prompt]]


class TurnPlanner:
    """Renders and tokenises with `make_prompt`, in helper processes; one per process."""

    def __init__(self, make_prompt: MakePrompt) -> None:
        self._make_prompt = make_prompt

    async def plan(
        self,
        session: LiveSession,
        conversation: Conversation | RawPrompt,
        demand: ToolDemand | None = None,
        stop: Sequence[str] = (),
    ) -> TurnPlan:
        """Plan the next turn of a session. Raises ApiError if the prompt cannot be made."""
        if isinstance(conversation, RawPrompt):
            token_ids = await self._raw_ids(session, conversation)
            return raw_plan(session.tree, conversation, token_ids, session.job.text)
        job, model = session.job, session.job.spec.model
        try:
            matched = turn_match(session.tree, conversation, job.text, stop=stop)
            request = matched.request(
                job.text,
                model=job.model_path,
                max_tokens=model.max_model_len,
                # The client left the answers that it names to this server, which has their tokens.
                retains_reasoning=model.thinking_retention is ThinkingRetention.ALL
                or bool(conversation.named),
                demand=demand,
            )
            asked = asked_prompt(request)
        except ValueError as error:
            raise bad_request(f"The messages cannot be rendered: {error}.", param="messages") from error
        return turn_plan(session.tree, matched, await self._prompt(job, request, asked))

    async def _prompt(self, job: LiveJob, request: PromptRequest, asked: AskedPrompt) -> Prompt:
        make = partial(self._make_prompt, job.job_id)
        if not request.cuts:
            is_lasting = job.text.template.is_constant
            return await job.recent_prompts.prompt(asked, make, is_lasting=is_lasting)
        kind = request_kind(job.text, request) if len(asked.body) > TAILS_ABOVE_BYTES else None
        if kind is None:
            return await make(asked)
        if kind in job.proven_tails:
            try:
                prompt = await make(asked_prompt(request_of_tail(request)))
            except TailNotEnough:
                metrics.RENDERED_WHOLE.inc()
            else:
                metrics.TAILS_SENT.inc()
                return prompt
        prompt = await make(asked)
        if prompt.is_of_tail and len(job.proven_tails) < MAX_KINDS:
            job.proven_tails.add(kind)
        return prompt

    async def _raw_ids(self, session: LiveSession, prompt: RawPrompt) -> bytes:
        job = session.job
        if prompt.token_ids is None:
            try:
                asked = asked_prompt(
                    prompt.request(model=job.model_path, max_tokens=job.spec.model.max_model_len)
                )
            except ValueError as error:
                raise bad_request(f"The prompt cannot be tokenised: {error}.", param="prompt") from error
            return (await self._make_prompt(job.job_id, asked)).new_ids
        highest = int(np.frombuffer(prompt.token_ids, dtype="<i4").max())
        if highest > (max_id := job.text.max_id):
            raise bad_request(f"prompt must have token ids up to {max_id}, got {highest}.", param="prompt")
        return prompt.token_ids


def met(session: LiveSession, request: TurnRequest[Any]) -> TurnRequest[Any]:
    """Return the request as this job meets it: a demand for strict tools that it cannot meet is named as ignored.

    Other demands stay, with a bound on the reasoning before the form: engines and models that cannot meet them refuse
    them.
    """
    demand = request.demand
    if demand is None:
        return request
    if not is_soft(demand) or _makes_strict(session, demand):
        return dataclasses.replace(request, demand=_with_bound(session, demand, request.max_tokens))
    return dataclasses.replace(request, demand=None, ignored=(*request.ignored, demand.field))


async def completed(session: LiveSession, request: TurnRequest[Any], store: TurnStore) -> TurnRequest[Any]:
    """Return the request with its conversation, whose earlier answers it may only name. Raises ApiError (404)."""
    if request.completed is None:
        return request
    recorded = RecordedTurns(await store.texts(session.key))
    return dataclasses.replace(request, conversation=request.completed(recorded), completed=None)


def _with_bound(session: LiveSession, demand: ToolDemand, max_tokens: int | None) -> ToolDemand:
    """Bound reasoning by half of the answer's tokens, of which few have less than a character."""
    most = session.job.spec.rollout.max_tokens_per_turn
    num_tokens = most if max_tokens is None else min(most, max_tokens)
    num_chars = min(demand.max_reasoning_chars, num_tokens // 2)
    return msgspec.structs.replace(demand, max_reasoning_chars=num_chars)


def _makes_strict(session: LiveSession, demand: ToolDemand) -> bool:
    """Return whether calls can be guided: not every vLLM can, nor every family's calls."""
    if session.job.spec.rollout.engine is not EngineKind.EMBEDDED:
        return False
    text = session.job.text
    try:
        calls_check(
            demand.tools,
            text.family.name,
            has_token=lambda mark: text.tokenizer.token_to_id(mark) is not None,
        )
    except InvalidGuideError:
        return False
    return True


def turn_budget(session: LiveSession, plan: TurnPlan, max_tokens: int | None) -> int:
    """Return how many tokens an answer may have. Raises ApiError (400) if the prompt leaves none."""
    spec = session.job.spec
    num_left = spec.model.max_model_len - plan.num_prompt_tokens
    if num_left < 1:
        raise ContextTooLong(plan.num_prompt_tokens, spec.model.max_model_len)
    return min(num_left, spec.rollout.max_tokens_per_turn, max_tokens or num_left)
