"""A job whose agents speak all APIs of the gateway, a group each, raises its reward through each of them."""

import asyncio
import contextlib
import itertools
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow_workers.agents.rewards.exact_answer import exact_reward
from tests.acceptance.calculator_agents import Address, CalculatorAgents
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds
from tests.acceptance.platform_process import PlatformProcess, eventually

APIS = ("chat", "completions", "responses", "messages")
NUM_UPDATES = 24
GROUP_SIZE = 4
GROUPS_PER_BATCH = 8
NUM_AT_ONCE = 8  # groups
GAIN = 0.2  # of about 0.5 that were seen
OVER = ("job_over", "session_closed")

Rewards = dict[str, list[float]]


class JobOver(Exception):
    """The job takes no more sessions and answers no more requests."""


class Crew:
    """Works on one group after another until the job is over; `rewards` are in the order of their groups' ends."""

    def __init__(self, platform: PlatformProcess, job_id: str, model_root: Path) -> None:
        self._platform = platform
        self._job_id = job_id
        self._agents = CalculatorAgents(model_root / "calculator", f"{platform.gateway_url}/v1")
        lines = (model_root / "tasks.jsonl").read_text().splitlines()
        self._tasks = itertools.cycle([json.loads(line) for line in lines])
        self._numbers = itertools.count()
        self.rewards: Rewards = defaultdict(list)

    async def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._platform.token}"}
        async with httpx.AsyncClient(
            base_url=self._platform.gateway_url, headers=headers, timeout=120
        ) as http:
            await asyncio.gather(*(self._work(http) for _ in range(NUM_AT_ONCE)))
        await self._agents.close()

    async def _work(self, http: httpx.AsyncClient) -> None:
        with contextlib.suppress(JobOver):
            for number in self._numbers:
                api, task = APIS[number % len(APIS)], next(self._tasks)
                rewards = await asyncio.gather(
                    *(self._session(http, api, f"task {number}", task) for _ in range(GROUP_SIZE))
                )
                self.rewards[api].append(statistics.fmean(rewards))

    async def _session(self, http: httpx.AsyncClient, api: str, group: str, task: dict[str, Any]) -> float:
        body = {"job": self._job_id, "group": group, "task": task}
        session = (await _post(http, "/v1/sessions", body)).json()
        try:
            answer = await self._agents.answer[api](
                task["question"], Address(session["base_url"], session["api_key"])
            )
        except (openai.BadRequestError, anthropic.BadRequestError) as error:
            if any(code in str(error) for code in OVER):
                raise JobOver from error
            raise
        reward = exact_reward(task, answer)
        await _post(http, f"/v1/sessions/{session['session']}/reward", {"reward": reward})
        await _post(http, f"/v1/sessions/{session['session']}/close", {})
        return reward


async def _post(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
    """Send a request, again while the gateway asks to wait. Raises JobOver."""
    while True:
        answer = await http.post(path, json=body)
        if answer.status_code not in (429, 503):
            break
        await asyncio.sleep(float(answer.headers.get("retry-after", "1")))
    if answer.status_code == httpx.codes.BAD_REQUEST and any(code in answer.text for code in OVER):
        raise JobOver
    return answer.raise_for_status()


def external_spec(model_root: Path) -> dict[str, Any]:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, groups_per_batch=GROUPS_PER_BATCH)
    spec["name"] = "four APIs"
    spec["environment"] = {"name": "external"}
    spec["rollout"] |= {
        "group_size": GROUP_SIZE,
        "max_concurrent_sessions": 2 * GROUP_SIZE * GROUPS_PER_BATCH,
    }
    return spec


def test_a_job_learns_through_every_api(platform: PlatformProcess, model_root: Path) -> None:
    with platform.client() as client:
        job_id = client.job_submit(external_spec(model_root))["id"]
        eventually(lambda: client.job_get(job_id)["state"] == "running", timeout_s=120, what="the start")
        crew = Crew(platform, job_id, model_root)
        asyncio.run(crew.run())
        eventually(
            lambda: client.job_get(job_id)["state"] in TERMINAL_JOB_STATES, timeout_s=60, what="the end"
        )
        ended = client.job_get(job_id)
        assert ended["state"] == "completed", ended["state_reason"]
        assert_audit_holds(client, job_id)

    for api in APIS:
        rewards = crew.rewards[api]
        third = len(rewards) // 3
        first, last = statistics.fmean(rewards[:third]), statistics.fmean(rewards[-third:])
        print(f"{api}: {len(rewards)} groups, mean reward {first:.2f} -> {last:.2f}")
        assert last > first + GAIN, api
