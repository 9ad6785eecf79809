"""Defaults of a job that follow the hardware of the machines that could run it.

Enters: a spec as it was submitted, and what its project's machines report. Leaves: the spec's body with
`rollout.engine` and `model.dtype` filled in where the hardware speaks for others than the usual defaults. Invariant:
the author's own values stay as they are.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.job_spec import EngineKind, JobSpec
from seamlessflow.core.types.dtypes import Dtype
from seamlessflow.core.types.tags import Role

# Models of GPUs older than bfloat16 (before Ampere).
_WITHOUT_BFLOAT16 = re.compile(
    r"gpu=(k80|m40|m60|p4|p40|p100|v100s?|t4g?|gtx-.*|rtx-20\d\d.*|rtx-8000|titan-.*)"
)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a machine may be used for and computes with. `labels`: as in `core.types.labels`."""

    tags: frozenset[str]
    labels: frozenset[str]
    engine_kinds: frozenset[str]

    def suits(self, role: Role, placement: Sequence[str]) -> bool:
        return {role.value, *placement} <= self.tags | self.labels

    @property
    def gpus(self) -> list[str]:
        return [label for label in self.labels if label.startswith("gpu=")]

    @property
    def has_bfloat16(self) -> bool:
        return bool(self.gpus) and not any(map(_WITHOUT_BFLOAT16.fullmatch, self.gpus))


def hardware_filled(
    body: Mapping[str, Any], spec: JobSpec, machines: Sequence[Hardware]
) -> Mapping[str, Any]:
    """Return the body with the defaults that suit the machines; the very same body if those are the usual ones.

    Engine: vLLM if a machine that could roll out has GPUs and vLLM. Format: bfloat16 if all GPUs that the job could use
    compute with it, and it could use nothing else.
    """
    rolling = _able(spec, Role.ROLLOUT, machines)
    training = _able(spec, Role.TRAIN, machines)
    engine = spec.rollout.engine
    filled = dict(body)
    if "engine" not in spec.rollout.model_fields_set and any(map(_has_vllm, rolling)):
        engine = EngineKind.VLLM
        filled["rollout"] = {**(body.get("rollout") or {}), "engine": engine.value}
    is_fixed = "dtype" in spec.model.model_fields_set or spec.train.continue_from is not None
    used = [*training, *(machine for machine in rolling if engine.value in machine.engine_kinds)]
    if not is_fixed and used and all(machine.has_bfloat16 for machine in used):
        filled["model"] = {**body["model"], "dtype": Dtype.BFLOAT16.value}
    return body if filled == body else filled


def _able(spec: JobSpec, role: Role, machines: Sequence[Hardware]) -> list[Hardware]:
    """Return the machines that could have the role; none if the job has no such role."""
    if role not in spec.roles:
        return []
    placement = spec.placement.rollout if role is Role.ROLLOUT else spec.placement.train
    return [machine for machine in machines if machine.suits(role, placement)]


def _has_vllm(machine: Hardware) -> bool:
    return bool(machine.gpus) and EngineKind.VLLM.value in machine.engine_kinds
