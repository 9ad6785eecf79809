"""A version of each size reaches the device by file and by shared memory: how long that takes, and that it is whole.

The trainer is a process of its own (`transports_trainer.py`), which publishes the version once and then offers it by
one transport after the other. This process is the engine's end: it uses what the embedded engine uses to receive, and
every tensor is compared with its source where it lies.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.weights import read_tensors
from seamlessflow_workers.weights.receiving import weights_receive
from seamlessflow_workers.weights.transports.file.receiving import weights_check
from tests.gpu.checklist.checking import Figures, item_main, stopwatch
from tests.gpu.checklist.transports_trainer import VERSION, MadeTensors

GIB = 1 << 30
IN_MEMORY = Path("/dev/shm")  # where it has room: the speed of the machine's disk is not ours
_PREFIX = "seamlessflow-checklist-"
TRANSPORTS = (WeightTransport.FILE, WeightTransport.IPC)


def check(device_name: str, sizes: list[str], figures: Figures) -> None:
    device = torch.device(device_name)
    torch.zeros(1, device=device)  # what torch sets up at its first use is no transport's
    for left in IN_MEMORY.glob(f"{_PREFIX}*"):  # by an item that was killed
        shutil.rmtree(left)
    for size in sizes:
        num_bytes = int(float(size) * GIB)
        with (
            TemporaryDirectory(prefix=_PREFIX, dir=_place(num_bytes)) as folder,
            _trainer(Path(folder), num_bytes, figures) as trainer,
        ):
            for transport in TRANSPORTS:
                trainer.offer(transport)
                _measure(trainer, transport, device, figures)


def _place(num_bytes: int) -> Path | None:
    """Return where the version's files go; None: where temporary files usually are. Its memory is needed twice: for the
    files, and for the copy that the trainer keeps."""
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > 3 * num_bytes
    return IN_MEMORY if has_room else None


class _Trainer:
    def __init__(self, process: "subprocess.Popen[str]", source: MadeTensors, versions: Path) -> None:
        self._process = process
        self.source = source
        self.folder = versions / str(VERSION)

    def offer(self, transport: WeightTransport) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{transport}\n")
        self._process.stdin.flush()
        assert self.said() == {"offered": transport}

    def said(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the trainer ended"
        return json.loads(line)


@contextmanager
def _trainer(versions: Path, num_bytes: int, figures: Figures) -> Iterator[_Trainer]:
    command = [sys.executable, "-m", "tests.gpu.checklist.transports_trainer", str(versions), str(num_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        trainer = _Trainer(process, MadeTensors(num_bytes), versions)
        published = trainer.said()
        assert isinstance(published, dict)
        seconds = published["seconds"]
        speed = round(num_bytes / GIB / seconds, 2)
        figures.note(
            f"{num_bytes / GIB:g} GiB published",
            seconds=seconds,
            GiB_per_s=speed,
            folder=str(versions.parent),
        )
        try:
            yield trainer
        finally:
            process.kill()


def _measure(trainer: _Trainer, transport: WeightTransport, device: torch.device, figures: Figures) -> None:
    source = trainer.source
    with stopwatch() as watched:
        tensors = _received(trainer.folder, transport, device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    seconds = watched()
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        name: layout.shape for name, layout in source.layouts().items()
    }
    values = torch.frombuffer(source.block(), dtype=torch.int16).to(device)
    for number, name in enumerate(source.layouts()):
        values[0] = number
        assert tensors[name].device.type == device.type
        assert torch.equal(tensors[name].reshape(-1).view(torch.int16), values), name
    size = source.num_bytes / GIB
    figures.note(f"{size:g} GiB by {transport}", seconds=seconds, GiB_per_s=round(size / seconds, 2))
    del tensors, values
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _received(folder: Path, transport: WeightTransport, device: torch.device) -> dict[str, Tensor]:
    """Return the version's tensors on the device, as an engine gets them."""
    weights_check(folder, version=VERSION)
    arrival = weights_receive(folder, transport, device=device.type)
    assert (arrival.transport, arrival.fallback) == (transport, "")
    # A copy on a processor too, where the files would only be mapped.
    tensors = {name: tensor.to(device, copy=True) for name, tensor in read_tensors(arrival.folder).items()}
    arrival.close()
    return tensors


if __name__ == "__main__":
    item_main(check)
