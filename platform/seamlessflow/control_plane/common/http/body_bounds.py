"""How large a request's body may be, by method and path. A path that is not named here takes no body at all.

`docs/operations.md` shows this table to operators; `runtime/http/limits` has the values.
"""

from dataclasses import dataclass

from seamlessflow.runtime.http.limits import (
    MAX_FORM_BYTES,
    MAX_JSON_BYTES,
    MAX_WORKER_BYTES,
    MULTIPART_OVERHEAD_BYTES,
)

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
POSTS = frozenset({"POST"})
UPLOAD_PATH = "/api/v1/uploads"


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a body. `is_upload`: the caller must be known before a byte of the body is read."""

    max_bytes: int
    is_upload: bool = False


NO_BODY = Bound(0)


def body_bound(*, method: str, path: str, max_upload_bytes: int) -> Bound:
    if path == UPLOAD_PATH and method == "POST":
        return Bound(max_upload_bytes + MULTIPART_OVERHEAD_BYTES, is_upload=True)
    for prefix, methods, max_bytes in (
        ("/api/worker/v1/", POSTS, MAX_WORKER_BYTES),
        ("/api/v1/", WRITES, MAX_JSON_BYTES),
        ("/admin/", POSTS, MAX_FORM_BYTES),
        ("/signin", POSTS, MAX_FORM_BYTES),
    ):
        if path.startswith(prefix):
            return Bound(max_bytes) if method in methods else NO_BODY
    return NO_BODY
