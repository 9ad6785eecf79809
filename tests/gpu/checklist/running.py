"""Runs the items of a part, one after the other: each is a process, and everything that it started ends with it.

It takes a part and a device, prints a line for each item, and writes the summary and a log. Invariants: an item that
fails, hangs or cannot be killed is reported as failed and holds up no other; the part ends within its limit. This
process adopts the orphans of items, so it must have no other children.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from xml.etree import ElementTree

from seamlessflow_workers.agents.keeper.descendants import descendants
from seamlessflow_workers.process import launch
from tests.fixtures.repository import ROOT
from tests.gpu.checklist.memory import Peaks, cards_open
from tests.gpu.checklist.plan import END_S, PATIENCE, Item, Part
from tests.gpu.checklist.report import Result, State, summary_write

FIGURES_VARIABLE = "SEAMLESSFLOW_CHECKLIST_FIGURES"
SKIPPED_STATUS = 77  # of an item that cannot be run here; its last line says why
NOT_TRIED = "not tried"  # the entry of its figures that lists what it left out
_LOOK_S = 0.25
_POLL_S = 0.02
_NUM_LINES_KEPT = 40
_MAX_SKIPS_SHOWN = 4


def part_run(part: Part, device: str, python: str, folder: Path) -> list[Result]:
    """Run all items, by this interpreter; write `part-<name>.json` and `part-<name>.log` to the folder."""
    launch.subreaper_set(is_subreaper=True)
    folder.mkdir(parents=True, exist_ok=True)
    ends_at = time.monotonic() + part.limit_s * PATIENCE[device]
    used = cards_open() if device == "cuda" else None
    results: list[Result] = []
    path = folder / f"part-{part.name}.log"
    path.write_bytes(b"")
    with path.open("ab", buffering=0) as log, TemporaryDirectory() as scratch:
        for item in part.items:
            left_s = ends_at - time.monotonic() - END_S
            limit_s = min(item.limit_s * PATIENCE[device], left_s)
            result = item_run(
                item, device, python, limit_s=limit_s, log=log, scratch=Path(scratch) / item.name, used=used
            )
            results.append(result)
            print(result.line(part.name), flush=True)
            summary_write(folder / f"part-{part.name}.json", part, device, results)
    return results


def item_run(
    item: Item,
    device: str,
    python: str,
    *,
    limit_s: float,
    log: IO[bytes],
    scratch: Path,
    used: Callable[[], list[int]] | None = None,
) -> Result:
    if limit_s <= 0:
        return Result(item.name, State.FAILED, 0.0, item.limit_s, message="its part had no time left")
    scratch.mkdir()
    figures, junit = scratch / "figures.json", scratch / "junit.xml"
    log.write(f"\n==== {item.name}: {item.proves}\n".encode())
    begins = Path(log.name).stat().st_size
    peaks = Peaks(used)
    started_s = time.monotonic()
    command = [python, *item.command(device), *(("--junitxml", str(junit)) if item.is_suite else ())]
    process = subprocess.Popen(
        # Whatever ends this process ends the item.
        [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), _cores(), *command],
        cwd=ROOT,
        env={**environment_of(device), FIGURES_VARIABLE: str(figures)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    status = _wait(process, started_s + limit_s, peaks)
    seconds = time.monotonic() - started_s
    stuck = end_all(within_s=END_S)
    process.poll()  # it has been collected with the others
    ending = _ending(Path(log.name), begins)
    found = _figures(figures)
    not_tried = [str(what) for what in found.pop(NOT_TRIED, [])]
    state, message = _judge(status, item, junit, ending, not_tried)
    if stuck:
        state, message = State.FAILED, f"{message}; processes {stuck} could not be killed".removeprefix("; ")
    return Result(
        item.name,
        state,
        round(seconds, 1),
        round(limit_s, 1),
        card_bytes=peaks.card,
        host_bytes=peaks.host,
        message=message,
        not_tried=not_tried,
        figures=found if state is not State.FAILED else {**found, "last lines": ending},
    )


def environment_of(device: str) -> dict[str, str]:
    """Return the environment of items: on a processor, no card is seen by anyone."""
    paths = [str(ROOT / "platform"), str(ROOT / "workers"), str(ROOT)]
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "SEAMLESSFLOW_TEST_DEVICE": device,
        "DS_ACCELERATOR": device,
        "HF_HUB_OFFLINE": "1",
    }
    return {**os.environ, **own, **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}


def end_all(*, within_s: float) -> list[int]:
    """Kill everything below this process; return what is still there in the end, such as a process that waits for a
    driver."""
    gives_up_at = time.monotonic() + within_s
    while below := descendants():
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > gives_up_at:
            return below
        time.sleep(_POLL_S)
    return []


def _cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


def _wait(process: "subprocess.Popen[bytes]", until_s: float, peaks: Peaks) -> int | None:
    """Return its exit status; None if it had to be killed."""
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            return process.wait(min(_LOOK_S, left_s))
        except subprocess.TimeoutExpired:
            _collect_orphans(process.pid)
            peaks.look(descendants())
    return None


def _collect_orphans(item: int) -> None:
    """Collect what ended after its parent, as init does elsewhere; the item itself is left to whoever waits for it."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == item:
                return
            os.waitpid(ended.si_pid, 0)


def _ending(log: Path, begins: int) -> list[str]:
    """Return the last lines that an item wrote."""
    with log.open("rb") as file:
        file.seek(begins)
        return file.read().decode(errors="replace").splitlines()[-_NUM_LINES_KEPT:]


def _judge(
    status: int | None, item: Item, junit: Path, ending: list[str], not_tried: list[str]
) -> tuple[State, str]:
    last = next((line.strip() for line in reversed(ending) if line.strip()), "it printed nothing")
    if status is None:
        return State.FAILED, f"not done within its limit; its last line: {last}"
    if status == SKIPPED_STATUS:
        return State.SKIPPED, last
    if status < 0:
        return State.FAILED, f"killed by {signal.Signals(-status).name}; its last line: {last}"
    if not item.is_suite:
        return (State.PASSED, "") if status == 0 else (State.FAILED, last)
    counts, skips = _suite_of(junit)
    not_tried += skips
    message = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    if status or counts["failed"]:
        return State.FAILED, f"{message or 'no test was run'}; {last}"
    return (State.PASSED if counts["passed"] else State.SKIPPED), message


def _suite_of(junit: Path) -> tuple[dict[str, int], list[str]]:
    """Return how many tests passed, failed and were skipped, and the reasons of the last."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    if not junit.exists():
        return counts, []
    reasons: dict[str, int] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        kinds = {child.tag for child in case}
        what = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts[what] += 1
        if what == "skipped" and (skipped := case.find("skipped")) is not None:
            reason = skipped.get("message", "")
            reasons[reason] = reasons.get(reason, 0) + 1
    shown = [f"{reason} ({number} tests)" for reason, number in reasons.items()]
    return counts, shown[:_MAX_SKIPS_SHOWN]


def _figures(path: Path) -> dict[str, Any]:
    """Return what the item wrote; it may have been killed while it did."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
