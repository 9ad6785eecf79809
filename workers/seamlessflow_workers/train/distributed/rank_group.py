"""Several processes that train together, behind the same protocol as one: `step_engine.StepEngine`.

This process is rank 0, or the first rank of another machine of a gang. It starts the other ranks of its machine, sends
them each of its own calls (`rank_commands`) and computes its own slice; rank 0 also sends them to the other machines.
All ranks meet in a store of rank 0, on a socket that is bound before anyone learns its port: on the loopback, or where
the machine listens to others. If a rank ends, the whole trainer ends and starts again from its last checkpoint; without
rank 0 the others exit by themselves.
"""

import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
from torch._C._distributed_c10d import Store, TCPStore

from seamlessflow.core.batching.format import Batch, batch_encode
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.liveness.device_errors import is_device_error
from seamlessflow_workers.process.device_environment import trainer_devices
from seamlessflow_workers.train.control import end_process
from seamlessflow_workers.train.distributed.gang_members import GangMember
from seamlessflow_workers.train.distributed.rank_commands import (
    Command,
    Load,
    Offload,
    Publish,
    Reload,
    Restore,
    Save,
    Saved,
    Step,
    command_send,
)
from seamlessflow_workers.train.distributed.seats import device_failure, pin_to_cores, rank_cores
from seamlessflow_workers.train.step.engine import TrainEngine
from seamlessflow_workers.train.step.process_group import process_group_start
from seamlessflow_workers.train.step_engine import DeviceUse, ModelLoadError, RankGone, StepEngine
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import TensorLayout
from seamlessflow_workers.weights.transports.file.shards import ShardOrder

logger = logging.getLogger(__name__)

EXIT_RANK_LOST = 4
EXIT_DEVICE_FAILED = 5
_LAST_WORD_S = 10.0  # the cause may stop rank 0 as well, which can report it better
_DYING_S = 1.0
_LOOPBACK = "127.0.0.1"
_UNSPECIFIED = {"0.0.0.0": _LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound
_JOIN_LIMIT = timedelta(minutes=30)  # other machines may read their models from slower disks
_PROOF_PREFIX = ".gang-"


def engine_load(model_path: Path, spec: JobSpec) -> StepEngine:
    """Load the engine of one process, or of `train.num_ranks` processes on one machine. Raises ModelLoadError."""
    spec = spec.on_devices(num_devices())
    if spec.train.num_ranks == 1:
        pin_to_cores(_seats(1)[0])
        process_group_start()
        return TrainEngine(model_path, spec)
    return gang_lead(model_path, spec, members=(), listen_host=_LOOPBACK, artifacts=None)


def gang_lead(
    model_path: Path,
    spec: JobSpec,
    *,
    members: Sequence[GangMember],
    listen_host: str,
    artifacts: Path | None,
) -> "RankGroup":
    """Start rank 0 with the other ranks of its machine and all other machines. Raises ModelLoadError, RankGone.

    `artifacts` is a folder that all machines must see.
    """
    spec = spec.on_devices(min([num_devices(), *(member.num_devices for member in members)]))
    num_local = spec.train.known_num_ranks
    _require_devices(num_local)
    family = socket.AF_INET6 if ":" in listen_host else socket.AF_INET
    with socket.create_server((listen_host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        own_host = _UNSPECIFIED.get(listen_host, listen_host)
        store = TCPStore(
            own_host,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
            timeout=_JOIN_LIMIT,
        )
    address = members[0].connection.getsockname()[0] if members else _LOOPBACK
    order = Load(
        rank=0,
        local_rank=0,
        num_ranks=num_local * (1 + len(members)),
        store_host=own_host,
        store_port=port,
        address=address,
        cores=_seats(num_local)[0],
        model_path=str(model_path),
        spec=spec.model_dump_json().encode(),
    )
    with _artifacts_proof(artifacts) as (proof_path, proof):
        for number, member in enumerate(members, 1):
            there = msgspec.structs.replace(
                order,
                rank=number * num_local,
                store_host="",
                address="",
                cores=[],
                proof_path=proof_path,
                proof=proof,
            )
            command_send([member.connection], there)
        return RankGroup(order, store, members)


def gang_follow(load: Load, connection: socket.socket) -> StepEngine:
    """Load the engine of another machine's first rank and of the other ranks there. Raises ModelLoadError."""
    if load.proof_path and _proof_read(Path(load.proof_path)) != load.proof:
        raise ModelLoadError(
            f"does not see the artifacts of the leading machine: {Path(load.proof_path).parent} must be the same "
            "folder on all machines that train together (ARTIFACT_ROOT)"
        )
    num_local = JobSpec.model_validate_json(load.spec).train.known_num_ranks
    _require_devices(num_local)
    here = msgspec.structs.replace(
        load,
        store_host=connection.getpeername()[0],
        address=connection.getsockname()[0],
        cores=_seats(num_local)[0],
        proof_path="",
    )
    return follower_join(here) if num_local == 1 else RankGroup(here, _store_of(here), ())


def follower_join(load: Load) -> TrainEngine:
    """Load the engine of a rank that starts no others. Raises ModelLoadError."""
    return _engine_join(load, _store_of(load))


def _engine_join(load: Load, store: Store) -> TrainEngine:
    pin_to_cores(load.cores)
    process_group_start(
        rank=load.rank,
        local_rank=load.local_rank,
        num_ranks=load.num_ranks,
        store=store,
        address=load.address,
    )
    return TrainEngine(Path(load.model_path), JobSpec.model_validate_json(load.spec))


def _store_of(load: Load) -> TCPStore:
    return TCPStore(load.store_host, load.store_port, is_master=False, timeout=_JOIN_LIMIT)


@contextmanager
def _artifacts_proof(artifacts: Path | None) -> Iterator[tuple[str, str]]:
    """Yield path and contents of a file that only machines that see the folder can read. It exists while all load."""
    if artifacts is None:
        yield "", ""
        return
    artifacts.mkdir(parents=True, exist_ok=True)
    for left in artifacts.glob(f"{_PROOF_PREFIX}*"):  # left by a trainer that was killed while others loaded
        left.unlink(missing_ok=True)
    proof = secrets.token_hex(16)
    path = artifacts / f"{_PROOF_PREFIX}{proof}"
    path.write_text(proof)
    try:
        yield str(path), proof
    finally:
        path.unlink(missing_ok=True)


def _proof_read(path: Path) -> str | None:
    try:
        list(path.parent.iterdir())  # a network file system may have cached that the file does not exist
        return path.read_text()
    except OSError:
        return None


class RankGroup:
    """The first rank of a machine and the other ranks, processes of their own to which it sends its calls."""

    def __init__(self, load: Load, store: Store, members: Sequence[GangMember]) -> None:
        """Return once all ranks have loaded. Raises ModelLoadError, or RankGone if another machine failed."""
        spec = JobSpec.model_validate_json(load.spec)
        self._members = tuple(members)
        num_local = spec.train.known_num_ranks
        seats = _seats(num_local)
        self._local = [_Rank(number) for number in range(1, num_local)]
        for rank in self._local:
            own = {"rank": load.rank + rank.number, "local_rank": rank.number, "cores": seats[rank.number]}
            command_send([rank.connection], msgspec.structs.replace(load, **own))
        self._connections = [*(m.connection for m in self._members), *(r.connection for r in self._local)]
        with self._explained():
            self._own = _engine_join(load, store)

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        command = Step(batch=batch_encode(batch), step_version=step_version, optimizer_step=optimizer_step)
        with self._together(command):
            return self._own.step(batch, step_version=step_version, optimizer_step=optimizer_step)

    @property
    def adapter_config(self) -> bytes | None:
        return self._own.adapter_config

    def layouts(self) -> Mapping[str, TensorLayout]:
        return self._own.layouts()

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        with self._together(Publish(order=order)):
            return self._own.shards_write(order, sealed)

    def state_save(self, folder: Path, tag: str) -> None:
        with self._together(Save(folder=str(folder), tag=tag)):
            self._own.state_save(folder, tag)

    def state_saved(self, *, waits: bool) -> bool:
        with self._together(Saved(waits=waits)):
            return self._own.state_saved(waits=waits)

    def state_load(self, folder: Path, tag: str) -> None:
        with self._together(Restore(folder=str(folder), tag=tag)):
            self._own.state_load(folder, tag)

    def offload(self) -> DeviceUse:
        with self._together(Offload()):
            return self._own.offload()

    def reload(self) -> None:
        with self._together(Reload()):
            self._own.reload()

    @contextmanager
    def _together(self, command: Command) -> Iterator[None]:
        """Send the command to the others, then do the same here. Raises RankGone if it fails because one has ended."""
        with self._explained():
            command_send(self._connections, command)
            yield

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ModelLoadError:
            raise
        except RuntimeError as error:  # collectives raise it too
            if is_device_error(str(error)):
                raise RankGone(device_failure(0, os.environ)) from error
            for rank in self._local:
                if (loss := rank.loss()) is not None:
                    raise RankGone(loss) from error
            for member in self._members:
                if (loss := member.loss()) is not None:
                    raise RankGone(loss) from error
            raise


class _Rank:
    """The process of another rank, watched for as long as this process lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._ended = threading.Event()
        self.connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "seamlessflow_workers.train.distributed.follower",
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
            )
        threading.Thread(target=self._watch, name=f"rank-{number}", daemon=True).start()

    def loss(self) -> str | None:
        """Return how it ended, after waiting a moment for a process that is exiting; None while it lives."""
        self._ended.wait(_DYING_S)
        code = self._process.returncode
        if code == EXIT_DEVICE_FAILED:
            return device_failure(self.number, os.environ)
        return None if code is None else f"rank {self.number} of the trainer ended with exit code {code}"

    def _watch(self) -> NoReturn:
        """End the trainer when this rank ends, because the others would wait for it in their next collective."""
        code = self._process.wait()
        self._ended.set()
        logger.error("rank %d of the trainer ended with exit code %d", self.number, code)
        time.sleep(_LAST_WORD_S)
        end_process(EXIT_RANK_LOST, f"{self.loss()}; the trainer restarts from its checkpoint")


def num_devices() -> int:
    """Return how many devices this machine trains on; without a supervisor, how many GPUs it has, and at least one."""
    return len(trainer_devices(os.environ)) or torch.cuda.device_count() or 1


def _seats(num_ranks: int) -> list[list[int]]:
    return rank_cores(trainer_devices(os.environ), num_ranks)


def _require_devices(num_ranks: int) -> None:
    if torch.cuda.is_available() and num_ranks > torch.cuda.device_count():
        raise ModelLoadError(
            f"train.num_ranks is {num_ranks}, but this machine has {torch.cuda.device_count()} GPUs; "
            "set it to at most as many, or to auto"
        )
