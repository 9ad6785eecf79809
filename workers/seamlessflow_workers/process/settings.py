"""What the children of one machine are started with, whichever job they work for.

The supervisor reads these settings once, at its start; they are the same for all children for as long as it lives.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.core.job_spec import EngineKind

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EngineFinding:
    """Whether one kind of engine can be started here: its version, or why not."""

    version: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    control_plane_url: str
    cores: frozenset[int]
    device: str
    # What runs each kind of child, before its flags.
    engine_commands: Mapping[EngineKind, tuple[str, ...]]
    # Which kinds of engines can be started here, and why the others cannot.
    engines: Mapping[EngineKind, EngineFinding]
    # Where fronts and trainers that meet listen, and the name under which gateways and other machines reach them.
    listen_host: str = LOOPBACK
    advertised_host: str = LOOPBACK
    train_command: tuple[str, ...] = (sys.executable, "-m", "seamlessflow_workers.train")
    agent_command: tuple[str, ...] = (sys.executable, "-m", "seamlessflow_workers.agents")
