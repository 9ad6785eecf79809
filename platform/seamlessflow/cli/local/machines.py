"""The machines of an installation: slices of this host, each with its own supervisor.

Takes names, tags and cores; names each machine's token file and makes its supervisor's `ProcessSpec`. Invariant: a
token of another database is never used.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.cli.local.environment import Addresses
from seamlessflow.cli.local.process_tree import ProcessSpec
from seamlessflow.cli.local.state import Home
from seamlessflow.core.types.devices import is_core_sets

STOP_TIMEOUT_S = 20.0
SUPERVISOR = "seamlessflow_workers.supervisor"


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """A machine to run here. `tags` are used at registration. `core` is an index, from 0, into the cores that we may
    use; None: unpinned. `devices` is the value of its supervisor's flag `--devices`; None: all that it finds.
    `core_devices` are indices like `core`, each of a core that is a device. `module` is the program that supervises it.
    """

    name: str
    tags: tuple[str, ...]
    core: int | None = None
    devices: str | None = None
    core_devices: tuple[int, ...] = ()
    module: str = SUPERVISOR


def token_file(home: Home, machine: LocalMachine) -> Path:
    return home.machine_token_file(machine.name)


def forget_tokens_of_other_database(home: Home, *, identity: str) -> None:
    """Delete tokens of another database: tokens are rows of a database, so they are useless."""
    noted = home.machines / "database"
    if noted.exists() and noted.read_text() == identity:
        return
    for path in home.machines.glob("*.token"):
        path.unlink()
    noted.write_text(identity)


def missing_tokens(home: Home, machines: Sequence[LocalMachine]) -> dict[Path, tuple[str, ...]]:
    """Return the management commands that print the tokens of machines which have none, by the file for the token."""
    return {
        path: ("register_machine", machine.name, "--tags", ",".join(machine.tags))
        for machine in machines
        if not (path := token_file(home, machine)).exists()
    }


def supervisor_spec(
    home: Home, machine: LocalMachine, *, addresses: Addresses, env: Mapping[str, str]
) -> ProcessSpec:
    return ProcessSpec(
        name=f"supervisor-{machine.name}",
        command=(
            *(sys.executable, "-m", machine.module),
            *("--name", machine.name, *_place(machine)),
            *("--control-plane-url", addresses.web_url, "--token-file", str(token_file(home, machine))),
        ),
        env=env,
        stop_timeout_s=STOP_TIMEOUT_S,
        cwd=home.root,
    )


def _place(machine: LocalMachine) -> tuple[str, ...]:
    """Return the flags that give a machine its cores and devices."""
    core = usable_core(machine.core)
    pinned = () if core is None else ("--cores", str(core))
    if machine.devices is not None:
        # With the kind, which may differ from that in the environment: agents have no GPU where engines do.
        kind = "cpu" if is_core_sets(machine.devices) else "cuda"
        return (*pinned, "--devices", machine.devices, "--device", kind)
    if cores := [core for index in machine.core_devices if (core := usable_core(index)) is not None]:
        return ("--devices", ",".join(f"cpu:{core}" for core in cores), "--device", "cpu")
    return pinned


def usable_core(index: int | None) -> int | None:
    """Return the number of the `index`-th core that we may use; None (unpinned) if there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    return None if index is None or index >= len(cores) else cores[index]
