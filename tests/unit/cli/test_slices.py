"""Slices of a host: names, tags and devices of their own, and one end for all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from seamlessflow.cli import slices, worker
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.slices import MachineSlice, host_prefix, slices_parse
from tests.fixtures.machine_devices import gpu

GPUS = tuple(gpu(number) for number in range(8))
CORE = min(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "visible_gpus", lambda environ: GPUS)


def parsed(*texts: str) -> tuple[MachineSlice, ...]:
    return slices_parse(texts, prefix="node-7", environ={})


def test_a_host_is_cut_into_machines_with_devices_of_their_own() -> None:
    rollout, train = parsed("rollout=0-5", "train=6,7")
    assert (rollout.name, rollout.tags, rollout.devices) == ("node-7-rollout", ("rollout",), GPUS[:6])
    assert (train.name, train.tags) == ("node-7-train", ("train",))
    assert train.flags == ("--devices", f"{GPUS[6].id},{GPUS[7].id}", "--device", "cuda")


def test_slices_with_the_same_tags_are_numbered_and_tags_may_have_values() -> None:
    names = [one.name for one in parsed("rollout,train=0", "rollout,train=1", f"agent,rack=3=cpu:{CORE}")]
    assert names == ["node-7-rollout-train", "node-7-rollout-train-2", "node-7-agent-rack-3"]


@pytest.mark.parametrize(
    "texts,problem",
    [
        (("rollout",), "--slice 'rollout' must be tags and devices, such as rollout=0-5"),
        (("=0",), "must be tags and devices"),
        (("rollout=9",), "--slice 'rollout=9': devices '9': there is no GPU 9"),
        (("Roll out=0",), "must match"),
        (("gpu=h100=0",), "tag 'gpu=h100' cannot be given"),
        (
            ("rollout=0-5", "train=5"),
            f"--slice 'train=5': {GPUS[5].id} is already in the slice node-7-rollout",
        ),
        ((f"rollout=cpu:{CORE}", f"agent=cpu:{CORE}"), f"core {CORE} is already in the slice node-7-rollout"),
        (("rollout=cpu:60000",), "there is no core 60000"),
    ],
)
def test_a_slice_that_cannot_be_is_one_line(texts: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CliError) as refused:
        parsed(*texts)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_name_of_any_host_begins_a_machines_name() -> None:
    assert host_prefix("GPU_Node.example") == "gpu-node.example"
    assert host_prefix("___") == "host"


def test_flags_of_one_machine_are_refused_beside_slices() -> None:
    refused = CliRunner().invoke(worker.worker, ["--slice", "rollout=0", "--tags", "train"])
    assert isinstance(refused.exception, CliError)
    assert str(refused.exception) == "--tags is for one machine, and cannot be given with --slice"
    neither = CliRunner().invoke(worker.worker, ["--name", "a"])
    assert str(neither.exception) == "--name and --tags are required, unless there is a --slice"


RUN = r"""
import os, sys
from seamlessflow.cli.slices import run_together
waits = '''
import pathlib, signal, time
def once(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(0.1 if {path!r}.endswith("one") else 1)  # a second signal kills it now, as it would a supervisor
    raise SystemExit
signal.signal(signal.SIGTERM, once)
pathlib.Path({path!r}).touch()
time.sleep(600)
'''
paths = sys.argv[1:]
commands = [(sys.executable, "-S", "-c", waits.format(path=path)) for path in paths]
if not paths[0].startswith("/"):
    fails = "import pathlib, time\nwhile not pathlib.Path({path!r}).exists(): time.sleep(0.01)\nraise SystemExit(3)"
    commands[0] = (sys.executable, "-S", "-c", fails.format(path=paths[1]))
sys.exit(run_together(commands, environ=os.environ))
"""


def test_a_signal_ends_all_of_them(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    process = subprocess.Popen([sys.executable, "-c", RUN, *map(str, paths)])
    deadline_s = time.monotonic() + 20
    while not all(path.exists() for path in paths) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert not slices_left(tmp_path)


def test_the_end_of_one_ends_the_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "fails", str(tmp_path / "two")], timeout=20, check=False
    )
    assert done.returncode == 3
    assert not slices_left(tmp_path)


def slices_left(folder: Path) -> list[Path]:
    """Return the processes whose command line names the folder."""
    lines = Path("/proc").glob("[0-9]*/cmdline")
    return [line for line in lines if str(folder).encode() in _read(line)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""
