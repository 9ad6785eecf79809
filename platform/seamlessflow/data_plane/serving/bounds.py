"""The bounds of a session: turns, tokens, and answers at the same time. Requests beyond them are refused with 429.

Turns are bounded by the job (`environment.max_turns`), the others by the installation. A refusal names the bound and
its value. One that no waiting changes has `x-should-retry: false`, which the clients of OpenAI and Anthropic obey, and
that the episode should end: its session stays open and is graded as it is. Invariant: the answer of a recorded
turn is delivered again whatever the bounds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession

RETRY_AFTER_S = 1
PACE_S = 0.01  # between two refusals of a job
LONGEST_PACE_S = 10.0
END_IT = "End the episode; the session is graded with what it has."


@dataclass(frozen=True, slots=True)
class SessionBounds:
    """Those of the installation."""

    max_answers: int  # of a session at the same time
    max_tokens: int  # sampled in a session

    @contextmanager
    def request(self, session: LiveSession) -> Iterator[None]:
        """Count a request while it is served. Raises ApiError (429)."""
        if session.use.num_requests >= self.max_answers:
            raise self._too_many_at_once()
        session.use.num_requests += 1
        try:
            yield
        finally:
            session.use.num_requests -= 1

    def check_next(self, session: LiveSession) -> None:
        """Check that the session may begin a further turn. Raises ApiError (429)."""
        use, max_turns = session.use, session.job.spec.environment.max_turns
        if use.num_turns + use.num_open_turns >= max_turns:
            message = (
                f"The session has had all turns of its job (environment.max_turns: {max_turns}). {END_IT}"
            )
            raise _final(message, "max_turns_reached")
        if use.num_tokens >= self.max_tokens:
            message = (
                f"The session has {use.num_tokens} sampled tokens; this installation allows {self.max_tokens} "
                f"(SEAMLESSFLOW_SESSION_TOKENS). {END_IT}"
            )
            raise _final(message, "session_tokens_reached")

    def check_answers(self, session: LiveSession, num_answers: int) -> None:
        """Check that the session may have so many further answers at the same time. Raises ApiError (429)."""
        if num_answers > self.max_answers:
            message = (
                f"The request asks for {num_answers} answers; this installation allows a session {self.max_answers} at "
                "the same time (SEAMLESSFLOW_SESSION_ANSWERS). Ask for fewer."
            )
            raise _final(message, "too_many_answers")
        if session.use.num_open_answers + num_answers > self.max_answers:
            raise self._too_many_at_once()

    def budget(self, session: LiveSession, num_answers: int, num_tokens: int) -> int:
        """Return how many of these tokens each of a turn's answers may have; at least one."""
        left = self.max_tokens - session.use.num_tokens
        return max(1, min(num_tokens, left // num_answers))

    def _too_many_at_once(self) -> ApiError:
        return BoundReached(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"The session already has as many answers under way as this installation allows at the same time "
            f"({self.max_answers}, SEAMLESSFLOW_SESSION_ANSWERS). Send the request again once one has ended.",
            code="too_many_answers",
            headers={"retry-after": str(RETRY_AFTER_S), "x-should-retry": "true"},
        )


class PacedRefusals:
    """Lets refusals of a job go out one after the other, so that an agent that goes on asking costs little.

    The first of an agent goes at once; the client of a later one waits for it. One per process.
    """

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._next_s: dict[UUID, float] = {}

    async def wait(self, job_id: UUID) -> None:
        now_s = self._clock()
        self._next_s = {job: next_s for job, next_s in self._next_s.items() if next_s > now_s}
        goes_s = self._next_s.get(job_id, now_s)
        if goes_s - now_s > LONGEST_PACE_S:
            goes_s = now_s + LONGEST_PACE_S
        else:
            self._next_s[job_id] = goes_s + PACE_S
        if goes_s > now_s:
            await self._sleep(goes_s - now_s)


class BoundReached(ApiError):
    """A session asks for more than it may have."""


def _final(message: str, code: str) -> ApiError:
    headers = {"x-should-retry": "false"}
    return BoundReached(HTTPStatus.TOO_MANY_REQUESTS, message, code=code, headers=headers)
