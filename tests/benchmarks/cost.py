"""Measures what the planes cost: the processor time of each process, per update and per model call
of the example job.

It returns a row for each kind of process. Updates are compared with one process without planes,
which does everything (sampling, learning, copying weights); calls are compared with all processes
together. Processor time depends less than wall time on what else the machine does; on cores that
share units it still varies by a tenth. A repeat is a stretch of one long job between two published
versions, so starts are not included. Commits of PostgreSQL are counted as well. What this benchmark
itself asks the database is left out of both.

With the environment variable BASE, a revision of this repository, the same job also runs on the code
of that revision. The two platforms then take turns, and further rows compare their calls.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg

from seamlessflow.cli.demo import example_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row
from tests.fixtures.repository import ROOT

LEARNING_RATE = 2e-4
MAX_NUM_SEQS = 12
NUM_BEFORE = 8  # updates: starts, empty caches
NUM_COUNTED = 24
NUM_REPEATS = 3
NUM_TURNS = 2  # of each platform, if two of them are compared
NUM_REPEATS_IN_TURN = 2
POLL_S = 0.02
TIMEOUT_S = 300.0
BASE_VARIABLE = "BASE"
PLANES_GOAL = Goal(0.5, Bound.AT_MOST, Quantity.RATIO)
ALONE = "one process without planes, all of it"
WHOLE, PLANES, CALLS, COMMITS = "the whole platform", "the planes", "calls", "commits"
# The first entry whose word is in the command line applies.
KINDS: Mapping[str, str] = {
    "seamlessflow.data_plane": "gateway",
    "rollout.engine": "engines",
    "seamlessflow_workers.train": "trainer",
    "seamlessflow_workers.agents": "agents",
    "seamlessflow_workers.supervisor": "supervisors",
    "control_plane.asgi": "web",
    "run_scheduler": "scheduler",
    "celery": "background, beat",
    "postgres": "PostgreSQL",
    "valkey": "broker",
}
OTHER = "launcher and others"
WORK = frozenset({"engines", "trainer"})  # the planes are all the others
NUM_PUBLISHED = "SELECT max(version) FROM policies_policyversion"
_TOTALS = """
    SELECT (SELECT sum(num_turns) FROM trajectory_session),
           (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())"""


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals at one moment: processor seconds by kind of process, updates, recorded turns,
    commits."""

    cpu_s: Mapping[str, float]
    num_updates: int
    num_calls: int
    num_commits: int


def kind_of(command_line: Sequence[str]) -> str:
    line = " ".join(command_line)
    return next((kind for word, kind in KINDS.items() if word in line), OTHER)


def stretch(before: Reading, after: Reading) -> dict[str, float]:
    """Return, per update between two readings: milliseconds by kind of process and in total, calls,
    commits."""
    num_updates = after.num_updates - before.num_updates
    used_ms = {
        kind: (used_s - before.cpu_s.get(kind, 0.0)) * 1e3 / num_updates
        for kind, used_s in after.cpu_s.items()
    }
    return used_ms | {
        PLANES: sum(value for kind, value in used_ms.items() if kind not in WORK),
        WHOLE: sum(used_ms.values()),
        CALLS: (after.num_calls - before.num_calls) / num_updates,
        COMMITS: (after.num_commits - before.num_commits) / num_updates,
    }


async def measure() -> list[Row]:
    return await asyncio.to_thread(_measure, os.environ.get(BASE_VARIABLE))


def _measure(revision: str | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = {"model": example_model(root / "calculator"), "tasks": example_tasks(root / "tasks.jsonl")}
        if revision is None:
            ours = list(_platform_stretches(root, files, num_repeats=NUM_REPEATS))
            return rows_of(ours, Measured(list(_alone_ms(files))))
        ours, base = _in_turns(root, files, checkout=_checkout(revision, root / "base"))
        return rows_of(ours, Measured(list(_alone_ms(files)))) + base_rows_of(ours, base, revision)


def _checkout(revision: str, folder: Path) -> Path:
    """Write the files of a revision into `folder`. Raises subprocess.CalledProcessError if there is
    no such revision."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", revision, "platform", "workers", "tests", "deploy", "manage.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def _in_turns(
    root: Path, files: Mapping[str, Path], *, checkout: Path
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return stretches of this repository's code and of the checkout's, measured alternately."""
    ours: list[dict[str, float]] = []
    base: list[dict[str, float]] = []
    for turn, (stretches, code) in itertools.product(range(NUM_TURNS), ((base, checkout), (ours, None))):
        home = root / f"turn-{turn}-{'ours' if code is None else 'base'}"
        home.mkdir()
        stretches += _platform_stretches(
            root, files, num_repeats=NUM_REPEATS_IN_TURN, home=home, checkout=code
        )
    return ours, base


def rows_of(ours: Sequence[Mapping[str, float]], alone: Measured) -> list[Row]:
    """`ours` are stretches of the platform; `alone` are milliseconds per update of the single
    process."""
    kinds = _kinds(ours)
    whole = _per_call(ours, WHOLE)
    return [
        *(
            Row(f"{kind}: an update", "ms", Measured([one.get(kind, 0.0) for one in ours]), ALONE, alone)
            for kind in kinds
        ),
        *(Row(f"{kind}: a call", "ms", _per_call(ours, kind), "all of it", whole) for kind in kinds),
        Row(
            "commits: an update",
            "commits",
            Measured([one[COMMITS] for one in ours]),
            "model calls",
            Measured([one[CALLS] for one in ours]),
        ),
    ]


def base_rows_of(
    ours: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]], revision: str
) -> list[Row]:
    """Compare the calls of two platforms: milliseconds of each kind of process, and commits."""
    return [
        *(
            Row(
                f"{kind}: a call, two revisions",
                "ms",
                _per_call(ours, kind),
                revision,
                _per_call(base, kind),
                PLANES_GOAL if kind == PLANES else None,
            )
            for kind in _kinds(base)
        ),
        Row(
            "commits: a call, two revisions",
            "commits",
            _per_call(ours, COMMITS),
            revision,
            _per_call(base, COMMITS),
        ),
    ]


def _kinds(stretches: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the kinds of processes and the sums, the dearest first."""
    kinds = [kind for kind in stretches[0] if kind not in (CALLS, COMMITS)]
    return sorted(kinds, key=lambda kind: stretches[0][kind], reverse=True)


def _per_call(stretches: Sequence[Mapping[str, float]], kind: str) -> Measured:
    return Measured([one.get(kind, 0.0) / one[CALLS] for one in stretches])


def _platform_stretches(
    root: Path,
    files: Mapping[str, Path],
    *,
    num_repeats: int,
    home: Path | None = None,
    checkout: Path | None = None,
) -> Iterator[dict[str, float]]:
    platform = new_platform(home or root / "home", model_root=root, checkout=checkout)
    platform.start()
    try:
        with platform.client() as client:
            num_updates = NUM_BEFORE + num_repeats * NUM_COUNTED + 1
            spec = example_spec(
                files, engine="embedded", learning_rate=LEARNING_RATE, num_updates=num_updates
            )
            spec["rollout"]["max_num_seqs"] = MAX_NUM_SEQS
            client.job_submit(spec)
        (scheduler,) = platform.find("run_scheduler")
        with psycopg.connect(scheduler.environ()["DATABASE_URL"], autocommit=True) as connection:
            probe = Probe(connection)
            before = reading_at(platform, probe, NUM_BEFORE)
            for _ in range(num_repeats):
                after = reading_at(platform, probe, before.num_updates + NUM_COUNTED)
                yield stretch(before, after)
                before = after
    finally:
        platform.stop()


@dataclass(slots=True)
class Probe:
    """Asks the platform's database, and counts its questions, each a commit that is no work of the
    platform."""

    connection: psycopg.Connection[Any]
    num_asked: int = 0

    def numbers(self, query: LiteralString) -> list[int]:
        self.num_asked += 1
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return [int(value or 0) for value in row]


def reading_at(platform: PlatformProcess, probe: Probe, num_updates: int) -> Reading:
    """Take a reading as soon as this many updates are published. What the probe costs is left out."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        (published,) = probe.numbers(NUM_PUBLISHED)
        if published >= num_updates:
            calls, commits = probe.numbers(_TOTALS)
            used_s = _cpu_by_kind(platform, but=probe.connection.info.backend_pid)
            return Reading(used_s, published, calls, commits - probe.num_asked)
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"only {published} of {num_updates} updates within {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def _cpu_by_kind(platform: PlatformProcess, *, but: int) -> dict[str, float]:
    """Include living processes and the children that they have outlived, except process `but`."""
    assert platform.process is not None
    used_s: Counter[str] = Counter()
    processes = [psutil.Process(platform.process.pid), *platform.family()]
    for process in (each for each in processes if each.pid != but):
        try:
            times, kind = process.cpu_times(), kind_of(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        used_s[kind] += times.user + times.system + times.children_user + times.children_system
    return dict(used_s)


def _alone_ms(files: Mapping[str, Path]) -> Iterator[float]:
    """Return the processor milliseconds per update of the single process, once per stretch."""
    command = (
        *(sys.executable, "-m", "tests.benchmarks.learners.single_process"),
        *("--model", str(files["model"]), "--tasks", str(files["tasks"])),
        *("--updates", str(NUM_BEFORE + NUM_REPEATS * NUM_COUNTED), "--learning-rate", str(LEARNING_RATE)),
    )
    # As supervisors start their children: threads that wait for work do not count as work.
    environ = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    with psutil.Popen(command, cwd=ROOT, env=environ, stdout=-1) as process:
        num_updates, before_s = 0, 0.0
        for line in process.stdout:
            num_updates += line.startswith(b'{"at_s')
            if num_updates >= NUM_BEFORE and (num_updates - NUM_BEFORE) % NUM_COUNTED == 0:
                times = process.cpu_times()
                used_s = times.user + times.system
                if num_updates > NUM_BEFORE:
                    yield (used_s - before_s) * 1e3 / NUM_COUNTED
                before_s = used_s
