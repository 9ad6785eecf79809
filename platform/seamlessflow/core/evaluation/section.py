"""The evaluation section of the job spec: held-out tasks that measure versions while the job
trains."""

from typing import Annotated

from pydantic import Field, model_validator

from seamlessflow.core.spec_section import FILE, Reference, SpecSection
from seamlessflow.core.types.rewards import Reward


class EvaluationSection(SpecSection):
    """Which policy versions are evaluated, and how. Evaluation tasks are never trained on."""

    tasks: Annotated[Reference | None, Field(json_schema_extra=FILE)] = None
    """JSONL file of held-out tasks: `artifact://<id>` or a path under MODEL_ROOTS. If left out,
    nothing is evaluated."""
    every_versions: Annotated[int, Field(ge=1, le=10_000_000)] = 10
    """Number of published versions between evaluations; the first and the last version are always
    evaluated."""
    samples_per_task: Annotated[int, Field(ge=1, le=1024)] = 4
    """Sessions per task (n)."""
    k: list[Annotated[int, Field(ge=1, le=1024)]] | None = Field(default=None, min_length=1, max_length=16)
    """Values of k for which pass@k is estimated; by default 1 and samples_per_task."""
    correct_reward: Reward = 1.0
    """A session passes when its reward is at least this."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; 0 is greedy. Default: rollout.temperature."""
    max_concurrent_sessions: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Maximum number of evaluation sessions that agent runners keep open at once, in addition to
    training sessions."""

    @model_validator(mode="after")
    def _fits_samples(self) -> "EvaluationSection":
        n = self.samples_per_task
        for k in self.k or []:
            if k > n:
                raise ValueError(
                    f"k: pass@{k} cannot be estimated from {n} samples_per_task; accepted: 1 to {n}"
                )
        if len(set(self.k or [])) != len(self.k or []):
            raise ValueError(f"k: contains a number twice, got {self.k}")
        if self.temperature == 0 and n > 1:
            raise ValueError(
                f"samples_per_task: greedy answers (temperature 0) are identical, so it must be 1, got {n}"
            )
        return self

    @property
    def is_on(self) -> bool:
        return self.tasks is not None

    @property
    def ks(self) -> tuple[int, ...]:
        """Values of k in ascending order. They always contain 1, because the best version is chosen by pass@1."""
        return tuple(sorted({1, *(self.k or (self.samples_per_task,))}))
