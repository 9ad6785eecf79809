"""What a client sees of a turn that waits because no engine works for its job.

In a stream: a comment with the sentence of the queue, at once and then with each sign of life. For a whole answer of an
agent outside the platform: an error that its client may retry, once its patience is over. Agents of the platform's own
runners wait as long as it takes, because their clocks stand still meanwhile. An answer that waited says so in a header.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from types import TracebackType

from seamlessflow.data_plane.dialects.events import comment
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.engines.client import EngineRefused
from seamlessflow.data_plane.turns.engines.pool import JobOver, TooManyHeld
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine, TurnWait
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession

WAITED = "x-seamlessflow-waited-s"
LEAST_WAIT_S = 0.1  # shorter waits are not worth a header
RETRY_AFTER_S = 5


class NoEngineYet(ApiError):
    """No engine took the request in time. What was sampled is kept for the retry."""

    def __init__(self, why: str, waited_s: float) -> None:
        super().__init__(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"The request waited {waited_s:.0f} s for an engine: {why.rstrip('.')}. Send it again.",
            code="no_engine",
            headers={
                "retry-after": str(RETRY_AFTER_S),
                "x-should-retry": "true",  # read by OpenAI's and Anthropic's clients
                WAITED: f"{waited_s:.1f}",
            },
        )


class EngineRefusals:
    """Turns failures of engines and pool into the errors that clients read, as a context.

    That there is no engine is no failure of an answer whose client has left: it stays as it is.
    """

    __slots__ = ("_clock", "_wait")

    def __init__(self, wait: TurnWait, clock: Callable[[], float]) -> None:
        self._wait, self._clock = wait, clock

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._wait.is_given_up and isinstance(error, NoEngine | TooManyHeld):
            return True
        if isinstance(error, EngineRefused):
            raise ApiError(HTTPStatus.BAD_REQUEST, f"{error}.") from error
        if isinstance(error, JobOver):
            raise ApiError(HTTPStatus.BAD_REQUEST, "The job is over.", code="job_over") from error
        if isinstance(error, NoEngine):
            raise NoEngineYet(str(error), self._wait.waited_s(self._clock())) from error
        if isinstance(error, TooManyHeld):
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{error}.", code="overloaded", headers={"retry-after": "1"}
            ) from error
        return False


def patience_s(session: LiveSession, engine_wait_s: float, *, is_streamed: bool) -> float | None:
    """Return how long a turn may wait for an engine; None: as long as it takes."""
    is_outside = session.job.session_ttl_s is not None
    return engine_wait_s if is_outside and not is_streamed else None


def waiting_comment(why: str) -> bytes:
    return comment(f"waiting: {why}")


def waited_header(wait: TurnWait, now_s: float) -> Sequence[tuple[bytes, bytes]]:
    """Return the header of an answer that waited for an engine."""
    waited_s = wait.waited_s(now_s)
    return [(WAITED.encode(), f"{waited_s:.1f}".encode())] if waited_s >= LEAST_WAIT_S else []
