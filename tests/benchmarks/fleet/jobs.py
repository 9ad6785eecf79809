"""The jobs of the fleet's benchmark: what each costs in stated machine seconds, and its spec.

The job's model has the pace that its job should have (`tests.fakes.pace`), so jobs with unlike ratios of rollout to
training share machines. `bound` is the rate at which machines that only work would train the job: it is computed from
the stated costs, without prompts, so no measurement can move it. A job never ends by itself; it is observed and then
cancelled.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster.long_tail import COMMAND, Lengths, tasks_write
from tests.benchmarks.cluster.workloads import ALGORITHM, ENDLESS, MAX_MODEL_LEN, SEED
from tests.fakes.pace import Pace, pace_write

STEP_S = 0.02  # one decoding step
NUM_SLOTS = 8
GROUP_SIZE = 16
NUM_TASKS = 200
PROMPT_WORDS = 64
# A token of a prompt costs a tenth of what a sampled one costs where all slots are filled.
PROMPT_TOKEN_S = STEP_S / NUM_SLOTS / 10
START_S = 2.0  # loading a model into a new process: a cold start
LONGEST = 3.0  # the longest answers, in means
SIGMA = 0.7


@dataclass(frozen=True, slots=True)
class FleetJob:
    """`ratio`: machine seconds of rollout per second of training; `mean_tokens`: of an answer."""

    name: str
    ratio: float
    groups_per_batch: int
    mean_tokens: float
    num_train_machines: int = 1  # a gang trains with so many at once, and takes as many times less time

    @property
    def rollout_token_s(self) -> float:
        return STEP_S / NUM_SLOTS

    @property
    def train_token_s(self) -> float:
        return self.rollout_token_s / self.ratio

    @property
    def tokens_per_batch(self) -> float:
        return self.groups_per_batch * GROUP_SIZE * self.mean_tokens

    @property
    def longest_s(self) -> float:
        return LONGEST * self.mean_tokens * STEP_S

    @property
    def pace(self) -> Pace:
        return Pace(
            step_s=STEP_S,
            prompt_token_s=PROMPT_TOKEN_S,
            start_s=START_S,
            load_s=0.05,
            wake_s=0.05,
            publish_s=0.05,
            train_token_s=self.train_token_s,
        )

    def bound(self, num_machines: int) -> float:
        """Return the trained tokens per second of machines that only work for this job."""
        return num_machines / (self.rollout_token_s + self.train_token_s)

    def alone_rate(self, num_machines: int) -> float:
        """Estimate the rate of the synchronous job on machines of its own: generation, its tail, then the step."""
        generating_s = self.tokens_per_batch * self.rollout_token_s / num_machines
        step_s = self.tokens_per_batch * self.train_token_s / self.num_train_machines
        return self.tokens_per_batch / (generating_s + self.longest_s / 2 + step_s)

    def model_in(self, folder: Path) -> Path:
        return folder / f"fleet-{self.name}"

    def write(self, endless: Path, folder: Path) -> tuple[Path, Path]:
        """Write the job's model, a copy of `endless` with the job's pace, and its tasks."""
        model, tasks = self.model_in(folder), folder / f"fleet-{self.name}.jsonl"
        if not model.exists():
            shutil.copytree(endless, model)
        pace_write(model, self.pace)
        tasks_write(
            tasks,
            num_tasks=NUM_TASKS,
            group_size=GROUP_SIZE,
            telling_every=1,
            seed=SEED,
            lengths=Lengths(mean=self.mean_tokens, sigma=SIGMA, longest=LONGEST),
            num_words=PROMPT_WORDS,
        )
        return model, tasks

    def spec(
        self,
        model: Path,
        tasks: Path,
        *,
        max_staleness: int,
        tag: str | None = None,
        train_tag: str | None = None,
        priority: int = 0,
    ) -> Mapping[str, Any]:
        """Return the job's spec. Machines without `tag` are not used; those without `train_tag` do not train."""
        tags, train_tags = [tag] if tag else [], [train_tag] if train_tag else []
        return {
            "name": self.name,
            "priority": priority,
            "placement": {"rollout": tags, "train": tags + train_tags},
            "model": {"source": str(model), "max_model_len": MAX_MODEL_LEN},
            "environment": {"name": "command", "command": [COMMAND], "tasks": str(tasks), "timeout_s": 120},
            "rollout": {
                "group_size": GROUP_SIZE,
                "groups_per_batch": self.groups_per_batch,
                "max_tokens_per_turn": int(LONGEST * self.mean_tokens),
                "max_concurrent_sessions": 4096,  # the staleness bound alone limits what is under way
                "max_num_seqs": NUM_SLOTS,
            },
            "algorithm": {**ALGORITHM, "max_staleness": max_staleness},
            "train": {
                "num_updates": ENDLESS,
                "learning_rate": 1e-7,
                "checkpoint_every_updates": 10,
                "keep_versions": 4,
                "num_machines": self.num_train_machines,
            },
            "seed": SEED,
        }


# Unlike in batch, length and ratio; a step takes 8, 5 and 3 s.
JOBS = (
    FleetJob("three-to-one", ratio=3, groups_per_batch=8, mean_tokens=75),
    FleetJob("seven-to-one", ratio=7, groups_per_batch=10, mean_tokens=87.5),
    FleetJob("fifteen-to-one", ratio=15, groups_per_batch=12, mean_tokens=93.75),
)
# They publish every few seconds, so that a smoke test sees several publications.
SHORT_JOBS = (
    FleetJob("short", ratio=3, groups_per_batch=2, mean_tokens=40),
    FleetJob("shorter", ratio=7, groups_per_batch=3, mean_tokens=30),
)
