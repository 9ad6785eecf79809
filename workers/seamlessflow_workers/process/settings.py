"""Settings with which a machine's children are started, whichever job they work for.

The supervisor reads these settings once, at its start; they stay the same for all children while it runs.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.sizing.gpu_memory import USUAL_SHARE
from seamlessflow.core.types.devices import Device

MEMORY_SHARE_VARIABLE = "SEAMLESSFLOW_MEMORY_SHARE"
USUAL_MEMORY_SHARE = 0.9
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EngineFinding:
    """The version of one kind of engine, or why it cannot be started here."""

    version: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    control_plane_url: str
    cores: frozenset[int]
    device: str
    # What children compute on: all of one kind, which is `device`. A phase has all of them.
    devices: tuple[Device, ...]
    # The command of each kind of child, without its flags.
    engine_commands: Mapping[EngineKind, tuple[str, ...]]
    # Which kinds of engine can be started here, and why others cannot.
    engines: Mapping[EngineKind, EngineFinding]
    # Where engines and trainers listen, and the name by which gateways and other machines reach them.
    listen_host: str = LOOPBACK
    advertised_host: str = LOOPBACK
    # The fraction of a GPU's memory that a vLLM engine is given, of what others leave.
    gpu_memory_fraction: float = USUAL_SHARE
    # The most of the host's memory that an engine or a trainer may use, with the processes that it starts.
    memory_limit_bytes: int | None = None
    train_command: tuple[str, ...] = (sys.executable, "-m", "seamlessflow_workers.train")
    agent_command: tuple[str, ...] = (sys.executable, "-m", "seamlessflow_workers.agents")
