"""Turns a refusal of the platform into one exception with one sentence."""

from typing import Any

import httpx

Json = dict[str, Any]


class ApiError(Exception):
    """The platform refused a request, or could not be reached."""

    def __init__(self, detail: str, *, status: int | None = None, problem: Json | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = problem or {}


def refusal_read(response: httpx.Response) -> ApiError:
    """Make an ApiError from an answer whose body has been read."""
    try:
        problem = dict(response.json())
    except (ValueError, TypeError):
        problem = {}
    faults = "; ".join(
        f"{e['field']}: {e['detail']}" if e.get("field") else e["detail"] for e in problem.get("errors", [])
    )
    detail = faults or problem.get("detail") or f"{response.url} answered {response.status_code}"
    return ApiError(detail, status=response.status_code, problem=problem)
