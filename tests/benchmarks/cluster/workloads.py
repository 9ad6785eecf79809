"""The jobs of the benchmark: how much rollout there is per second of training, and what determines
it.

With real engines, a token costs about as much to train as to sample, and the ratio depends on how
many groups teach something (all rewards of the other groups are equal, so they cost no training).
With paced ones it depends on the fixed durations. `ratio` is the target; the table shows what was
measured. A job would never end: it is observed for a number of versions and then cancelled, so no
figure includes the end of a job, when nothing is left to generate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster.layouts import Side
from tests.benchmarks.cluster.long_tail import COMMAND, MAX_TOKENS
from tests.fakes.pace import Pace

SEED = 11
GROUP_SIZE = 8
MAX_MODEL_LEN = 1024
ENDLESS = 1_000_000  # updates
# Without KL: a reference model would be loaded and asked about every token, also where there is nothing to learn.
ALGORITHM: Mapping[str, Any] = {"name": "grpo", "kl_coef": 0.0}


@dataclass(frozen=True, slots=True)
class Workload:
    """`pace` is None for real engines and trainer."""

    ratio: int  # rollout : train
    num_machines: int
    num_slots: int  # sequences that an engine decodes at once
    groups_per_batch: int
    num_versions: int  # that are observed; of synchronous sides half as many, which take as long
    num_rounds: int
    telling_every: int = 1  # one group in so many teaches something
    pace: Pace | None = None

    @property
    def name(self) -> str:
        kind = "real" if self.pace is None else f"paced, {self.num_machines} machines"
        return f"{kind}, {self.ratio}:1"

    @property
    def machines_key(self) -> tuple[int, Pace | None]:
        """Workloads with the same key run on one installation."""
        return self.num_machines, self.pace

    def num_versions_of(self, side: Side) -> int:
        return max(1, self.num_versions // 2) if side.is_synchronous else self.num_versions

    def spec(self, model: Path, tasks: Path, *, max_staleness: int) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "model": {"source": str(model), "max_model_len": MAX_MODEL_LEN},
            "environment": {"name": "command", "command": [COMMAND], "tasks": str(tasks), "timeout_s": 120},
            "rollout": {
                "group_size": GROUP_SIZE,
                "groups_per_batch": self.groups_per_batch,
                "max_tokens_per_turn": MAX_TOKENS,
                "max_concurrent_sessions": 2048,  # the staleness bound alone limits what is under way
                "max_num_seqs": self.num_slots,
            },
            "algorithm": {**ALGORITHM, "max_staleness": max_staleness},
            "train": {
                "num_updates": ENDLESS,
                "learning_rate": 1e-7,  # the work is the same as for any other; the model stays as it is
                "checkpoint_every_updates": 10,
                "keep_versions": 4,
            },
            "seed": SEED,
        }


# The longest answers take about as long as two batches: with less, most of them would be beyond any bound.
REAL = (
    Workload(ratio=1, num_machines=2, num_slots=8, groups_per_batch=8, num_versions=12, num_rounds=2),
    # A step costs something whatever it finds to learn: one group in eight gave 6 : 1.
    Workload(
        ratio=3,
        num_machines=2,
        num_slots=8,
        groups_per_batch=8,
        num_versions=12,
        num_rounds=2,
        telling_every=3,
    ),
)
_STEP_S = 0.01
_PACED_SLOTS = 4
_PACE = {"step_s": _STEP_S, "load_s": 0.05, "wake_s": 0.05, "publish_s": 0.05}
# One machine trains a job, so on eight of them a balanced job has seven times as much rollout as training.
PACED = tuple(
    Workload(
        ratio=ratio,
        num_machines=8,
        num_slots=_PACED_SLOTS,
        groups_per_batch=16,
        num_versions=8,
        num_rounds=1,
        pace=Pace(**_PACE, train_token_s=_STEP_S / _PACED_SLOTS / ratio),
    )
    for ratio in (7, 15)
)
WORKLOADS = (*REAL, *PACED)
