"""Agents that work on an external job, several groups at once, until the job is over.

Enter: the platform, a running job, its tasks and `Work`, which runs one session's agent and returns its reward. Groups
take turns between `kinds` of work. Leave: the mean reward of each group, in the order of the groups' ends.
"""

import asyncio
import contextlib
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from tests.acceptance.calculator_agents import Address
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess

GROUP_SIZE = 4
GROUPS_PER_BATCH = 8
NUM_AT_ONCE = 8  # groups
OVER = ("job_over", "session_closed")

Task = dict[str, Any]
Work = Callable[[str, Task, Address], Awaitable[float]]  # of a kind, a task and a session
Rewards = dict[str, list[float]]
NEARLY_ALL = 0.95  # of the greatest reward


class JobOver(Exception):
    """The job takes no more sessions and answers no more requests."""


class Crew:
    def __init__(
        self,
        platform: PlatformProcess,
        job_id: str,
        *,
        tasks: Sequence[Task],
        kinds: Sequence[str],
        work: Work,
    ) -> None:
        self._platform = platform
        self._job_id = job_id
        self._kinds = kinds
        self._work = work
        self._tasks = itertools.cycle(tasks)
        self._numbers = itertools.count()
        self.rewards: Rewards = defaultdict(list)  # by kind

    async def run(self) -> None:
        headers = {"Authorization": f"Bearer {self._platform.token}"}
        async with httpx.AsyncClient(
            base_url=self._platform.gateway_url, headers=headers, timeout=120
        ) as http:
            await asyncio.gather(*(self._groups(http) for _ in range(NUM_AT_ONCE)))

    async def _groups(self, http: httpx.AsyncClient) -> None:
        with contextlib.suppress(JobOver):
            for number in self._numbers:
                kind, task = self._kinds[number % len(self._kinds)], next(self._tasks)
                rewards = await asyncio.gather(
                    *(self._session(http, kind, f"task {number}", task) for _ in range(GROUP_SIZE))
                )
                self.rewards[kind].append(statistics.fmean(rewards))

    async def _session(self, http: httpx.AsyncClient, kind: str, group: str, task: Task) -> float:
        body = {"job": self._job_id, "group": group, "task": task}
        session = (await _post(http, "/v1/sessions", body)).json()
        try:
            reward = await self._work(kind, task, Address(session["base_url"], session["api_key"]))
        except (openai.BadRequestError, anthropic.BadRequestError) as error:
            if any(code in str(error.body) for code in OVER):
                raise JobOver from error
            raise
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


def tasks_of(model_root: Path) -> list[Task]:
    return [json.loads(line) for line in (model_root / "tasks.jsonl").read_text().splitlines()]


def external_spec(model_root: Path, name: str, *, num_updates: int) -> dict[str, Any]:
    """The spec of a job whose groups the crew works on."""
    spec = calculator_spec(model_root, num_updates=num_updates, groups_per_batch=GROUPS_PER_BATCH)
    spec["name"] = name
    spec["environment"] = {"name": "external"}
    spec["rollout"] |= {
        "group_size": GROUP_SIZE,
        "max_concurrent_sessions": 2 * GROUP_SIZE * GROUPS_PER_BATCH,
    }
    return spec


def assert_rewards_rise(rewards: Rewards, kind: str, *, gain: float) -> None:
    """Compare the last third of a kind's groups with the first. Nearly all of the reward is enough, however much there
    was of it at first: a policy that may not ramble begins well and learns within the first third."""
    values = rewards[kind]
    third = len(values) // 3
    first, last = statistics.fmean(values[:third]), statistics.fmean(values[-third:])
    print(f"{kind}: {len(values)} groups, mean reward {first:.2f} -> {last:.2f}")
    assert last > min(first + gain, NEARLY_ALL), kind
