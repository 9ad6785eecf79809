"""External agents: an external job whose model never stops, its sessions, and streams that are
read."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from tests.acceptance.outside_agents import external_spec
from tests.benchmarks.faults.trial import START_WITHIN_S, Trial
from tests.benchmarks.faults.world import World

READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Heard:
    text: str
    finish_reason: str | None
    error: Exception | None
    silent_s: float  # between the last chunk and the end, however it came


class Enough(Exception):
    """The client has read as much as it wants."""


def endless_job(trial: Trial) -> str:
    job_id = trial.accepted(external_spec(trial.world.models))
    trial.eventually(
        lambda: trial.state(job_id) == "running", within_s=START_WITHIN_S, what="the job's start"
    )
    return job_id


def session_opened(world: World, job_id: str, *, group: str = "one") -> dict[str, Any]:
    answer = httpx.post(
        f"{world.gateway_url}/v1/sessions",
        json={"job": job_id, "group": group},
        headers={"Authorization": f"Bearer {world.token}"},
        timeout=READ_TIMEOUT_S,
    )
    answer.raise_for_status()
    return dict(answer.json())


def streamed(
    session: dict[str, Any],
    *,
    max_tokens: int,
    attempt: int = 0,
    on_text: Callable[[str], object] = lambda text: None,
) -> Heard:
    """Read one stream. `on_text` gets the text so far; it may raise Enough, which closes the
    connection."""
    text, reason, error, seen_s = "", None, None, time.monotonic()
    body = {
        "model": "policy",
        "messages": [{"role": "user", "content": "Talk on."}],
        "max_tokens": max_tokens,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {session['api_key']}", "x-stainless-retry-count": str(attempt)}
    try:
        with httpx.stream(
            "POST",
            f"{session['base_url']}/chat/completions",
            json=body,
            headers=headers,
            timeout=READ_TIMEOUT_S,
        ) as answer:
            if answer.is_error:
                answer.read()
                answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                seen_s = time.monotonic()
                for choice in json.loads(line[6:]).get("choices", []):
                    text += choice["delta"].get("content") or ""
                    reason = choice.get("finish_reason") or reason
                on_text(text)
    except (httpx.HTTPError, Enough) as ended:
        error = ended
    if error is None and reason is None:
        error = httpx.RemoteProtocolError("the stream ended without a reason")
    return Heard(text, reason, error, time.monotonic() - seen_s)
