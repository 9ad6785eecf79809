"""The HTTP protocol of the web process: uvicorn's, with deadlines, bounds and refusals in the form of RFC 9457.

Uvicorn loads it before Django is set up, so it may import no model and reads its settings from the environment.
"""

import json
import os
import sys
from http import HTTPStatus

from seamlessflow.runtime import plane_variables
from seamlessflow.runtime.http.limits import HttpLimits
from seamlessflow.runtime.http.protocol import limited_protocol
from seamlessflow.runtime.variables import InvalidSetting, Reader

PROBLEM = b"application/problem+json"


def _refusal(status: HTTPStatus, message: str) -> tuple[bytes, bytes]:
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": message}
    return PROBLEM, json.dumps(problem | {"errors": []}).encode()


def limits() -> HttpLimits:
    return HttpLimits(_refusal, max_connections=Reader(os.environ).read(plane_variables.MAX_CONNECTIONS))


try:
    HttpProtocol = limited_protocol(limits())
except InvalidSetting as error:
    sys.exit(f"seamlessflow: {error}")
