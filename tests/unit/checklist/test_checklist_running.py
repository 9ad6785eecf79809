"""An item that fails, hangs or is killed is reported, ends with all its processes, and holds up no other."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures.repository import ROOT

DEADLINE_S = 120.0
# The items are programs of this test; whoever runs them adopts their orphans, so that is a process of its own.
RUN = """
import sys
from pathlib import Path
from tests.gpu.checklist import running
from tests.gpu.checklist.plan import Item, Part

def program(name, limit_s, *lines):
    return Item(name, "nothing", limit_s, ("-c", "\\n".join(lines)))

folder = Path(sys.argv[1])
child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
told = f"Path({str(folder / 'child')!r}).write_text(str(child.pid))"
imports = (
    "import os, signal, subprocess, sys, time",
    "from pathlib import Path",
    "from tests.gpu.checklist.checking import Figures",
    "figures = Figures(Path(os.environ['SEAMLESSFLOW_CHECKLIST_FIGURES']))",
)
items = (
    program("fails", 60, "raise RuntimeError('as it was told')"),
    program("hangs", 5, *imports, f"child = {child}", told, "figures.note('before', seconds=1)",
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "time.sleep(600)"),
    program("is killed", 60, "import os", "print('about to', flush=True)", "os.kill(os.getpid(), 9)"),
    program("is skipped", 60, "import sys", "print('there is no card')", f"sys.exit({running.SKIPPED_STATUS})"),
    program("has orphans", 60, *imports, "told, tell = os.pipe()", "middle = os.fork()", "if middle == 0:",
            "    orphan = os.fork()", "    if orphan: os.write(tell, str(orphan).encode())", "    os._exit(0)",
            "os.waitpid(middle, 0)", "orphan = os.read(told, 20).decode()", "ends_at = time.monotonic() + 30",
            "while Path('/proc', orphan).exists(): assert time.monotonic() < ends_at; time.sleep(0.01)"),
    program("passes", 60, *imports, "figures.note('speed', tokens=3)", "figures.leave_out('a part', 'a reason')"),
)
running.PATIENCE = {"cpu": 1.0}
running.part_run(Part("9", 300.0, items), "cpu", sys.executable, folder)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, Any], Path]:
    """The printed lines, the summary and the folder."""
    folder = tmp_path_factory.mktemp("checklist")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), json.loads((folder / "part-9.json").read_text()), folder


def item_of(summary: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [item for item in summary["items"] if item["name"] == name]
    return dict(found)


def test_every_item_has_its_line_in_order(run: tuple[list[str], dict[str, Any], Path]) -> None:
    lines, summary, _ = run
    states = [item["state"] for item in summary["items"]]
    assert states == ["FAIL", "FAIL", "FAIL", "skip", "pass", "pass"]
    assert len(lines) == len(states)
    for line, item in zip(lines, summary["items"], strict=True):
        assert line.startswith(f"part 9  {item['name']}")
        assert f" {item['state']} " in line
    assert not summary["passed"]


def test_a_failure_is_told_in_its_last_line(run: tuple[list[str], dict[str, Any], Path]) -> None:
    _, summary, _ = run
    failed = item_of(summary, "fails")
    assert failed["message"] == "RuntimeError: as it was told"
    assert "RuntimeError: as it was told" in failed["figures"]["last lines"]
    assert item_of(summary, "is killed")["message"] == "killed by SIGKILL; its last line: about to"


def test_a_hanging_item_ends_with_its_children_and_keeps_its_figures(
    run: tuple[list[str], dict[str, Any], Path],
) -> None:
    _, summary, folder = run
    hanging = item_of(summary, "hangs")
    assert hanging["message"].startswith("not done within its limit")
    assert hanging["limit_s"] <= hanging["seconds"]
    assert hanging["figures"]["before"] == {"seconds": 1}
    assert not psutil.pid_exists(int((folder / "child").read_text()))


def test_what_ends_after_its_parent_is_collected_while_its_item_runs(
    run: tuple[list[str], dict[str, Any], Path],
) -> None:
    """Else an item that waits for the end of all that it started would wait for a zombie."""
    _, summary, _ = run
    assert item_of(summary, "has orphans")["state"] == "pass"


def test_a_skip_has_its_reason_and_a_pass_its_figures(run: tuple[list[str], dict[str, Any], Path]) -> None:
    lines, summary, _ = run
    assert item_of(summary, "is skipped")["message"] == "there is no card"
    passed = item_of(summary, "passes")
    assert passed["figures"] == {"speed": {"tokens": 3}}
    assert passed["not_tried"] == ["a part: a reason"]
    assert "not tried: a part: a reason" in lines[-1]
    assert passed["card_bytes"] is None


def test_a_card_that_is_asked_for_and_missing_fails_the_list() -> None:
    """Its first item fails, so that nobody takes a list of skips for a result of a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.checklist.packages", "--device", "cuda"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("torch sees no CUDA device: NOTHING WAS RUN ON A GPU")
