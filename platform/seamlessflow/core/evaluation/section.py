"""The evaluation section of the job spec: held-out tasks on which versions are measured while the job trains."""

from typing import Annotated

from pydantic import Field, model_validator

from seamlessflow.core.spec_section import SpecSection
from seamlessflow.core.types.rewards import Reward


class EvaluationSection(SpecSection):
    """Which versions are measured on tasks that are never trained, and how."""

    tasks: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """JSONL file of held-out tasks: `artifact://<id>` or a path under MODEL_ROOTS. None: nothing is evaluated."""
    every_versions: Annotated[int, Field(ge=1, le=10_000_000)] = 10
    """Evaluate whenever so many versions were published since; the first and the last version always are."""
    samples_per_task: Annotated[int, Field(ge=1, le=1024)] = 4
    """Sessions per task (n)."""
    k: list[Annotated[int, Field(ge=1, le=1024)]] | None = Field(default=None, min_length=1, max_length=16)
    """pass@k is estimated for each of these; by default for 1 and samples_per_task."""
    correct_reward: Reward = 1.0
    """A session passes when its reward is at least this."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """By default that of rollout; 0 is greedy."""
    max_concurrent_sessions: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Sessions of an evaluation that agent runners keep open at once, besides those of training."""

    @model_validator(mode="after")
    def _fits_samples(self) -> "EvaluationSection":
        n = self.samples_per_task
        for k in self.k or []:
            if k > n:
                raise ValueError(
                    f"k: pass@{k} cannot be estimated from {n} samples_per_task; accepted: 1 to {n}"
                )
        if len(set(self.k or [])) != len(self.k or []):
            raise ValueError(f"k: names a number twice, got {self.k}")
        if self.temperature == 0 and n > 1:
            raise ValueError(
                f"samples_per_task: greedy answers (temperature 0) are all alike, so it must be 1, got {n}"
            )
        return self

    @property
    def is_on(self) -> bool:
        return self.tasks is not None

    @property
    def ks(self) -> tuple[int, ...]:
        """Ascending; 1 is always among them: the best version is chosen by pass@1."""
        return tuple(sorted({1, *(self.k or (self.samples_per_task,))}))
