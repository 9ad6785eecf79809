"""The HTTP protocol of the web process: uvicorn's, with deadlines, bounds and refusals in the form of RFC 9457.

Uvicorn loads it before Django is set up, so it may import no model and reads its settings from the environment.
"""

import json
import os
import sys
from http import HTTPStatus

from seamlessflow.control_plane.env import Environment, InvalidSetting
from seamlessflow.runtime.http_limits import HttpLimits, limited_protocol

PROBLEM = b"application/problem+json"


def _refusal(status: HTTPStatus, message: str) -> tuple[bytes, bytes]:
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": message}
    return PROBLEM, json.dumps(problem | {"errors": []}).encode()


def _limits() -> HttpLimits:
    environment = Environment(os.environ)
    return HttpLimits(
        refusal=_refusal,
        max_connections=environment.integer("SEAMLESSFLOW_MAX_CONNECTIONS", default=4096, minimum=1),
        head_s=environment.integer("SEAMLESSFLOW_HEAD_TIMEOUT_S", default=10, minimum=1),
        body_s=environment.integer("SEAMLESSFLOW_BODY_TIMEOUT_S", default=30, minimum=1),
        drain_s=environment.integer("SEAMLESSFLOW_DRAIN_TIMEOUT_S", default=30, minimum=1),
    )


try:
    HttpProtocol = limited_protocol(_limits())
except InvalidSetting as error:
    sys.exit(f"seamlessflow: {error}")
