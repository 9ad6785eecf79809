"""Several processes of one machine that train together, behind the same protocol as one: `step_engine.StepEngine`.

This process is rank 0: it starts the others, tells each what it does itself (`rank_commands`) and computes its own
share. All meet in a store on the loopback, over a socket bound before anyone is told its port. A rank that ends ends
the whole trainer, which starts again from its last checkpoint; without rank 0 the others end by themselves.
"""

import logging
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

import torch
from torch._C._distributed_c10d import TCPStore

from seamlessflow.core.batching.format import Batch, batch_encode
from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.control import end_process
from seamlessflow_workers.train.distributed import process_group_start
from seamlessflow_workers.train.engine import TrainEngine
from seamlessflow_workers.train.rank_commands import (
    Command,
    Gather,
    Load,
    Offload,
    Reload,
    Restore,
    Save,
    Step,
    command_send,
)
from seamlessflow_workers.train.step_engine import ModelLoadError, RankGone, StepEngine
from seamlessflow_workers.weights.publish import RawTensor, TensorLayout

logger = logging.getLogger(__name__)

EXIT_RANK_LOST = 4
_LAST_WORD_S = 10.0  # what stopped a rank may stop rank 0 as well, which can say it better
_DYING_S = 1.0
_LOOPBACK = "127.0.0.1"
_ZERO_STAGE_OF_SPREAD_WEIGHTS = 3


def engine_load(model_path: Path, spec: JobSpec) -> StepEngine:
    """The engine of one process, or of `train.num_ranks`. Raises ModelLoadError."""
    if spec.train.num_ranks == 1:
        process_group_start()
        return TrainEngine(model_path, spec)
    _require_devices(spec.train.num_ranks)
    return RankGroup(model_path, spec)


class RankGroup:
    """Rank 0 and, in processes of their own, the others."""

    def __init__(self, model_path: Path, spec: JobSpec) -> None:
        """Returns when all ranks have loaded. Raises ModelLoadError."""
        num_ranks = spec.train.num_ranks
        with socket.create_server((_LOOPBACK, 0)) as listening:
            port = listening.getsockname()[1]
            store = TCPStore(
                _LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
            )
        self._is_spread = spec.train.zero_stage == _ZERO_STAGE_OF_SPREAD_WEIGHTS
        self._others = [_Rank(rank) for rank in range(1, num_ranks)]
        for other in self._others:
            command_send(
                [other.connection],
                Load(
                    rank=other.number,
                    num_ranks=num_ranks,
                    store_port=port,
                    model_path=str(model_path),
                    spec=spec.model_dump_json().encode(),
                ),
            )
        process_group_start(rank=0, num_ranks=num_ranks, store=store)
        self._own = TrainEngine(model_path, spec)

    def step(self, batch: Batch, *, step_version: int, optimizer_step: int) -> dict[str, float]:
        command = Step(batch=batch_encode(batch), step_version=step_version, optimizer_step=optimizer_step)
        with self._together(command):
            return self._own.step(batch, step_version=step_version, optimizer_step=optimizer_step)

    @property
    def adapter_config(self) -> bytes | None:
        return self._own.adapter_config

    def layouts(self) -> Mapping[str, TensorLayout]:
        return self._own.layouts()

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        if not self._is_spread:
            return self._own.tensors(names)
        with self._together(Gather(names=list(names))):
            return self._own.tensors(names)

    def state_save(self, folder: Path, tag: str) -> None:
        with self._together(Save(folder=str(folder), tag=tag)):
            self._own.state_save(folder, tag)

    def state_load(self, folder: Path, tag: str) -> None:
        with self._together(Restore(folder=str(folder), tag=tag)):
            self._own.state_load(folder, tag)

    def offload(self) -> int:
        with self._together(Offload()):
            return self._own.offload()

    def reload(self) -> None:
        with self._together(Reload()):
            self._own.reload()

    @contextmanager
    def _together(self, command: Command) -> Iterator[None]:
        """Tell the others, do the same here. Raises RankGone where that fails because one of them has ended."""
        try:
            command_send([other.connection for other in self._others], command)
            yield
        except RuntimeError as error:  # of a collective as well
            for other in self._others:
                if (code := other.exit_code()) is not None:
                    raise RankGone(
                        f"rank {other.number} of the trainer ended with exit code {code}"
                    ) from error
            raise


class _Rank:
    """The process of another rank, watched for as long as this one lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._ended = threading.Event()
        self.connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "seamlessflow_workers.train.follower", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
            )
        threading.Thread(target=self._watch, name=f"rank-{number}", daemon=True).start()

    def exit_code(self) -> int | None:
        """None while the process lives, which one that closed its connections soon does not."""
        self._ended.wait(_DYING_S)
        return self._process.returncode

    def _watch(self) -> NoReturn:
        """A rank never ends before rank 0; if it does, the others would wait for it in their next collective."""
        code = self._process.wait()
        self._ended.set()
        logger.error("rank %d of the trainer ended with exit code %d", self.number, code)
        time.sleep(_LAST_WORD_S)
        end_process(
            EXIT_RANK_LOST, f"rank {self.number} is gone; the trainer starts again from its checkpoint"
        )


def follower_join(load: Load) -> TrainEngine:
    """The engine of another rank. Raises ModelLoadError."""
    store = TCPStore(_LOOPBACK, load.store_port, is_master=False, timeout=timedelta(minutes=5))
    process_group_start(rank=load.rank, num_ranks=load.num_ranks, store=store)
    return TrainEngine(Path(load.model_path), JobSpec.model_validate_json(load.spec))


def _require_devices(num_ranks: int) -> None:
    if torch.cuda.is_available() and num_ranks > torch.cuda.device_count():
        raise ModelLoadError(
            f"train.num_ranks is {num_ranks}, but this machine has {torch.cuda.device_count()} GPUs; "
            "set it to at most as many"
        )
