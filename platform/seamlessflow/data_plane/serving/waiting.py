"""A turn that waits because no engine works for its job, as its client sees it.

In a stream: a comment with the sentence of the queue, at once and then with each sign of life. For a whole answer of an
agent outside the platform: an error that its client may retry, once its patience is over. Agents of the platform's own
runners wait as long as it takes, because their clocks stand still meanwhile.
"""

from http import HTTPStatus

from seamlessflow.data_plane.dialects.events import comment
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.engines.client import EngineRefused
from seamlessflow.data_plane.turns.engines.pool import JobOver, TooManyWaiting
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession

WAITED = "x-seamlessflow-waited-s"  # the header with the seconds that an answer waited
RETRY_AFTER_S = 5


class NoEngineYet(ApiError):
    """No engine took the request in time. The sampled tokens are kept for the retry."""

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


def client_error(error: NoEngine | TooManyWaiting | JobOver | EngineRefused, waited_s: float) -> ApiError:
    """Return the error that clients read for a failure of the engines or of the pool."""
    match error:
        case EngineRefused():
            return ApiError(HTTPStatus.BAD_REQUEST, f"{error}.")
        case JobOver():
            return ApiError(HTTPStatus.BAD_REQUEST, "The job is over.", code="job_over")
        case NoEngine():
            return NoEngineYet(str(error), waited_s)
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE, f"{error}.", code="overloaded", headers={"retry-after": "1"}
    )


def patience_s(session: LiveSession, engine_wait_s: float, *, is_streamed: bool) -> float | None:
    """Return how long a turn may wait for an engine; None: as long as it takes."""
    is_outside = session.job.session_ttl_s is not None
    return engine_wait_s if is_outside and not is_streamed else None


def waiting_comment(why: str) -> bytes:
    return comment(f"waiting: {why}")
