"""Whether a job's work fits into the memory of a machine's devices.

Takes what the job's model needs in each role and what the machine has. Only what certainly lies on a device rules it
out; a machine that does not report its memory is never ruled out.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.sizing.memory_needs import Need, engine_need, size_text, trainer_need
from seamlessflow.core.sizing.model_shape import ModelShape
from seamlessflow.core.training.section import AUTO
from seamlessflow.core.types.devices import Device, DeviceKind
from seamlessflow.core.types.tags import Role

# Sizes are rounded down to a multiple of this, so that hosts of one kind count as alike.
GRAIN_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a machine computes on: `num_bytes` on each of its devices, at least."""

    kind: DeviceKind
    num_devices: int
    num_bytes: int


def device_memory(devices: Sequence[Device]) -> DeviceMemory | None:
    """Return the memory that every device of a machine has; None if one of them does not report it."""
    least = min((device.memory_bytes for device in devices), default=0)
    if not least:
        return None
    grain = GRAIN_BYTES if least > GRAIN_BYTES else 1
    return DeviceMemory(devices[0].kind, len(devices), least // grain * grain)


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """`num_machines`: how many train together at least; `num_ranks`: training processes of each, None for one a device;
    `num_engine_devices`: over how many devices an engine is spread."""

    engine: Need | None
    trainer: Need
    num_machines: int
    num_ranks: int | None
    num_engine_devices: int = 1

    @property
    def key(self) -> Hashable:
        """What jobs have in common that fit into the same machines."""
        engine = self.engine.uses if self.engine is not None else None
        return engine, self.num_engine_devices, self.trainer.uses, self.num_machines, self.num_ranks

    def problem(self, role: Role, memory: DeviceMemory) -> str | None:
        """Return why the role does not fit, for people; None if it may."""
        need, who = (self.engine, "an engine") if role is Role.ROLLOUT else (self.trainer, "a trainer")
        if role is Role.AGENT or need is None:
            return None
        num_devices = self.num_engine_devices if role is Role.ROLLOUT else self._num_trainers(memory)
        least_bytes = need.least_bytes(num_devices, memory.kind)
        if least_bytes <= memory.num_bytes:
            return None
        has = f"{size_text(memory.num_bytes)} of memory"
        on_each = f" on each of its {memory.num_devices} devices" if memory.num_devices > 1 else ""
        words = need.words(num_devices, memory.kind)
        return f"has {has}{on_each}, but {who} needs at least {size_text(least_bytes)}: {words}"

    def bytes_at_work(self, role: Role, memory: DeviceMemory) -> tuple[int, int]:
        """Return what a process of the role certainly takes of each device while it works, and what it usually takes;
        0 if that is not known. Engines make do with the certain minimum, and a processor commits the rest late."""
        need = self.engine if role is Role.ROLLOUT else self.trainer
        if role is Role.AGENT or need is None:
            return 0, 0
        num_devices = self.num_engine_devices if role is Role.ROLLOUT else self._num_trainers(memory)
        certain = need.least_bytes(num_devices, memory.kind)
        is_sure = role is Role.ROLLOUT or memory.kind == "cpu"
        return certain, certain if is_sure else need.usual_bytes(num_devices)

    @property
    def shown(self) -> Mapping[str, Any]:
        """Return the needs by role, as the API shows them. Trainers take one machine with one device for granted where
        the spec leaves that open."""
        num_trainers = self.num_machines * (self.num_ranks or 1)
        return {
            Role.ROLLOUT.value: None if self.engine is None else self.engine.shown(self.num_engine_devices),
            Role.TRAIN.value: self.trainer.shown(num_trainers),
        }

    def _num_trainers(self, memory: DeviceMemory) -> int:
        return self.num_machines * (memory.num_devices if self.num_ranks is None else self.num_ranks)


def job_needs(spec: JobSpec, shape: ModelShape) -> JobNeeds:
    return JobNeeds(
        engine=engine_need(spec, shape) if Role.ROLLOUT in spec.roles else None,
        trainer=trainer_need(spec, shape),
        num_machines=spec.train.machines.min,
        num_ranks=None if spec.train.num_ranks == AUTO else spec.train.num_ranks,
        num_engine_devices=spec.rollout.parallel.num_devices,
    )
