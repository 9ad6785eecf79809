"""The services that the supervisor lends to each child.

The supervisor's objects satisfy the protocols below; phases know nothing else of it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

from seamlessflow.core.types.devices import Device
from seamlessflow_workers.phases.device_budget import DeviceBudget
from seamlessflow_workers.process.child import Spawner
from seamlessflow_workers.process.logs import RotatedFile
from seamlessflow_workers.process.settings import ChildSettings


class ChildFolders(Protocol):
    """Where the files of children are on this machine: `supervisor.home.MachineHome`."""

    @property
    def logs(self) -> Path: ...

    @property
    def run(self) -> Path: ...

    def socket_path(self, name: str) -> Path: ...


class PhaseLogs(Protocol):
    """Carries the logs of phases to the control plane: `supervisor.log_shipper.LogShipper`."""

    def follow(self, phase_id: UUID, *, stream: str, file: RotatedFile) -> None: ...

    def complete(self, phase_id: UUID) -> None:
        """Note that nothing more will be written."""
        ...

    def notify(self) -> None:
        """Note that something was written."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    settings: ChildSettings
    folders: ChildFolders
    shipper: PhaseLogs
    loading: asyncio.Lock
    memory: DeviceBudget
    on_moved: Callable[[], None]  # a phase or a child changed
    on_observed: Callable[[], None]  # something changed that only matters to the ledger
    on_counted: Callable[[], None]  # the number of requests in flight changed, and nothing else
    on_failed: Callable[[str, Sequence[Device]], None]  # a child ended, why, and on which devices it computed
    are_usable: Callable[[Sequence[Device]], bool]  # whether none of these devices is cordoned
    rendezvous_fd: int  # listening socket at which trainers of other machines meet this machine's
    fork_server: Spawner | None = None
