"""Plans a turn: joins a request to its session's tree, and bounds its answer by the model's context."""

from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.rendering.helpers import PromptHelpers
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.plan import (
    Conversation,
    TurnPlan,
    turn_match,
    turn_plan,
)


class TurnPlanner:
    """Renders and tokenises in helper processes; one per process."""

    def __init__(self, helpers: PromptHelpers) -> None:
        self._helpers = helpers

    async def plan(self, session: LiveSession, conversation: Conversation) -> TurnPlan:
        """Plan the next turn of a session. Raises ApiError if the messages cannot be rendered."""
        job = session.job
        try:
            matched = turn_match(session.tree, conversation)
            asked = matched.request(job.text, model=job.model_path, max_tokens=job.spec.model.max_model_len)
        except ValueError as error:
            raise bad_request(f"The messages cannot be rendered: {error}.", param="messages") from error
        return turn_plan(session.tree, matched, await self._helpers.prompt(job.job_id, asked))


def turn_budget(session: LiveSession, plan: TurnPlan, max_tokens: int | None) -> int:
    """Return how many tokens an answer may have. Raises ApiError (400) if the prompt leaves no room."""
    spec = session.job.spec
    room = spec.model.max_model_len - plan.num_prompt_tokens
    if room < 1:
        raise bad_request(
            f"This model's maximum context length is {spec.model.max_model_len} tokens, but the messages have "
            f"{plan.num_prompt_tokens} tokens.",
            param="messages",
            code="context_length_exceeded",
        )
    return min(room, spec.rollout.max_tokens_per_turn, max_tokens or room)
