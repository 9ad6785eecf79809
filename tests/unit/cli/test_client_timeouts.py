"""How long the client waits for answers that take the platform long."""

import httpx
import pytest

from seamlessflow.client import Client
from seamlessflow.control_plane.jobs.submission.gguf import TIMEOUT_S as CONVERSION_TIMEOUT_S


def test_a_submission_waits_for_as_long_as_a_conversion_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, float]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.extensions["timeout"])
        return httpx.Response(200, json={"id": "job_1"})

    monkeypatch.setattr("httpx.HTTPTransport", lambda **_: httpx.MockTransport(answer))
    with Client("http://127.0.0.1:1", "token", timeout_s=30.0) as client:
        client.job_get(client.job_submit({})["id"])

    submitted, read = asked
    assert submitted["read"] > CONVERSION_TIMEOUT_S
    assert submitted["connect"] == read["read"] == 30.0
