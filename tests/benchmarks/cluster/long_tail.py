"""An environment whose answers have lengths drawn beforehand: a long tail, identical for every side
of a comparison.

Each task has one length and one reward per session of its group. A session is one turn that is cut
at exactly that length (`max_tokens`, with a model that never ends a turn itself). The sessions of a
group take the task's lengths in turn, so a group always has the same lengths, whatever was run
again or moved.

Run as a module, it is the agent runner with this environment in place of `command`.
"""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from seamlessflow.core.environment.episodes import (
    POLICY_MODEL,
    BrokenEpisode,
    Outcome,
    PolicyEndpoint,
    Task,
)
from seamlessflow.core.job_spec import EnvironmentSection
from seamlessflow_workers.agents.main import main

COMMAND = "long-tail"  # in the place of a program's name
MEDIAN_TOKENS = 48
SIGMA = 0.9  # of the logarithm: the longest of 100 answers is about eight times the median
MIN_TOKENS = 8
MAX_TOKENS = 512


class LongTailEnvironment:
    """Uses one connection pool for all sessions and draws nothing itself."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._slots: dict[int, Iterator[int]] = {}

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        slot = next(self._slots.setdefault(task["number"], itertools.cycle(range(len(task["lengths"])))))
        body = {
            "model": POLICY_MODEL,
            "messages": [{"role": "user", "content": task["question"]}],
            "max_tokens": task["lengths"][slot],
        }
        headers = {"Authorization": f"Bearer {policy.api_key}"}
        async with self._http.post(
            f"{policy.base_url}/chat/completions", json=body, headers=headers
        ) as response:
            answer = await response.json()
        if response.status != 200:
            raise BrokenEpisode(f"HTTP {response.status}: {answer}")
        num_tokens = answer["usage"]["completion_tokens"]
        if num_tokens != task["lengths"][slot]:
            raise BrokenEpisode(f"the answer has {num_tokens} tokens, {task['lengths'][slot]} were forced")
        return Outcome(task["rewards"][slot])

    async def close(self) -> None:
        await self._http.close()


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal distribution of answers' lengths, by its mean before it is cut. `longest` is in means."""

    mean: float
    sigma: float
    longest: float

    def draw(self, random: np.random.Generator, num: int) -> list[int]:
        drawn = np.exp(random.normal(math.log(self.mean) - self.sigma**2 / 2, self.sigma, num))
        return np.clip(np.rint(drawn), MIN_TOKENS, self.longest * self.mean).astype(int).tolist()  # type: ignore[no-any-return]


LONG_TAIL = Lengths(
    mean=MEDIAN_TOKENS * math.exp(SIGMA**2 / 2),
    sigma=SIGMA,
    longest=MAX_TOKENS / (MEDIAN_TOKENS * math.exp(SIGMA**2 / 2)),
)


def tasks_write(
    path: Path,
    *,
    num_tasks: int,
    group_size: int,
    telling_every: int,
    seed: int,
    lengths: Lengths = LONG_TAIL,
    num_words: int = 0,
) -> Path:
    """Write tasks with drawn lengths. `num_words`: how many words longer than its question each prompt is.

    The rewards of every n-th task differ within the group. The other tasks teach nothing, so
    training skips them.
    """
    random = np.random.default_rng(seed)
    rewards = np.linspace(0, 1, group_size)
    words = " 7" * num_words
    with path.open("w") as file:
        for number in range(num_tasks):
            task = {
                "number": number,
                "question": f"What is {number}{words}?",
                "lengths": lengths.draw(random, group_size),
                "rewards": (
                    random.permutation(rewards) if number % telling_every == 0 else rewards * 0
                ).tolist(),
            }
            file.write(json.dumps(task) + "\n")
    return path


def environment_create(section: EnvironmentSection) -> Any:
    assert section.command == [COMMAND], section
    return LongTailEnvironment()


if __name__ == "__main__":
    main(environment_create)
