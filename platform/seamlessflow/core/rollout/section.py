"""The section `rollout` of the job spec: how a job samples, and how its engines use the devices of a machine."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from seamlessflow.core.admission.rule import RunAhead
from seamlessflow.core.rollout.engine_args import EngineArgument, refusal_of
from seamlessflow.core.spec_section import SpecSection

MAX_ENGINE_ARGUMENTS = 32


class EngineKind(StrEnum):
    EMBEDDED = "embedded"
    VLLM = "vllm"


class EngineParallelSection(SpecSection):
    """How one engine is spread over devices. A machine runs as many engines as its devices allow."""

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of devices over which each layer of the model is sharded (vLLM)."""
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of stages into which the layers are divided, one after the other (vLLM)."""
    expert: bool = False
    """Give each device of an engine whole experts of a mixture of experts instead of a shard of each (vLLM)."""

    @property
    def num_devices(self) -> int:
        """The devices that one engine takes."""
        return self.tensor * self.pipeline


class RolloutSection(SpecSection):
    engine: EngineKind = EngineKind.EMBEDDED
    """The program that samples: the platform's own small engine (`embedded`) or vLLM."""
    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number of sessions per task (G); at least 2 where advantages compare the sessions of a group, as in GRPO."""
    groups_per_batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Number of finished groups that one training step consumes."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature for training. If an agent sends its own value, it is overridden, and the
    override is recorded."""
    max_tokens_per_turn: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    """Maximum number of tokens in one answer."""
    max_concurrent_sessions: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Maximum number of sessions that each machine with the job's agents keeps open at once."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] = 64
    """Maximum number of sequences that one engine decodes at once."""
    parallel: EngineParallelSection = EngineParallelSection()
    engine_args: Annotated[dict[str, EngineArgument], Field(max_length=MAX_ENGINE_ARGUMENTS)] = Field(
        default_factory=dict
    )
    """Further arguments of vLLM that concern memory and speed, such as `{gpu_memory_utilization: 0.8}`."""
    run_ahead: RunAhead = RunAhead.AS_NEEDED
    """How far generation runs ahead of training: `as_needed`, so far that the trainer does not wait, which keeps
    samples fresh; `to_bound`, as far as `max_staleness` allows. If generation is slower than training, both are the
    same. Agents from outside are limited by the bound only."""

    @model_validator(mode="after")
    def _only_vllm_is_parallel(self) -> "RolloutSection":
        if self.engine is EngineKind.VLLM:
            return self
        for option in ("tensor", "pipeline"):
            if (value := getattr(self.parallel, option)) > 1:
                raise ValueError(
                    f"parallel.{option}: the embedded engine computes on one device, got {value}; accepted: 1, or set "
                    "rollout.engine to 'vllm'"
                )
        if self.parallel.expert:
            raise ValueError(
                "parallel.expert: the embedded engine has no expert parallelism; accepted: false"
            )
        if self.engine_args:
            raise ValueError(
                f"engine_args: {', '.join(sorted(self.engine_args))} are arguments of vLLM, but the engine is "
                "'embedded'; leave engine_args out, or set rollout.engine to 'vllm'"
            )
        return self

    @model_validator(mode="after")
    def _arguments_are_known(self) -> "RolloutSection":
        for name in self.engine_args:
            if (refusal := refusal_of(name)) is not None:
                raise ValueError(f"engine_args.{name}: {refusal}")
        return self
