"""Wall clocks that differ, and one that steps back: fault 8, by libfaketime, in installations of
its own."""

import time
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.faults.trial import NUM_UPDATES, Fault, Trial

LIBRARIES = (
    Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    Path("/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"),
    Path("/usr/lib64/faketime/libfaketimeMT.so.1"),
)
SKEWS = {"alpha": "-300s", "beta": "+300s", "gamma": "+7s"}
STEP_BACK = "-300s"
NUM_SLOW_UPDATES = 16  # a machine under libfaketime computes at a tenth of its pace
ORDER_BY_CLOCK = frozenset({"ledger_fills_the_time"})


def library() -> Path | None:
    return next((path for path in LIBRARIES if path.exists()), None)


def _faked(**settings: str) -> dict[str, str]:
    # Only the wall clock: a machine's monotonic clock does not step.
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",  # a lock that processes share makes each look at a clock ten times as dear
        **settings,
    }


def skewed_machine(name: str) -> Mapping[str, str]:
    return _faked(FAKETIME=SKEWS[name])


def steerable_server(file: Path) -> Mapping[str, str]:
    """Start processes whose clock is set by `file`, which they read every second."""
    return _faked(FAKETIME_TIMESTAMP_FILE=str(file), FAKETIME_CACHE_DURATION="1")


def machines_of_other_times(trial: Trial) -> None:
    job_id = trial.under_way(trial.spec(num_updates=NUM_SLOW_UPDATES))
    version = trial.version(job_id)
    trial.eventually(lambda: trial.version(job_id) > version + 5, within_s=120, what="five more versions")
    trial.require(not trial.failed_phases(job_id), f"a phase failed: {trial.failed_phases(job_id)[:1]}")


def server_steps_back(trial: Trial, file: Path) -> None:
    job_id = trial.under_way(trial.spec(num_updates=2 * NUM_UPDATES))
    file.write_text(STEP_BACK)
    stepped_s = time.monotonic()
    version = trial.version(job_id)
    _, took_s = trial.eventually(
        lambda: trial.version(job_id) > version + 5, within_s=120, what="five more versions"
    )
    trial.figures.append(f"five more versions {took_s:.1f} s after the step")
    with trial.world.database() as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
    behind_s = time.time() - float(str(row[0])) if row else 0.0
    trial.require(behind_s > 200, f"the database's clock did not step back, it is {behind_s:.0f} s behind")
    trial.require(time.monotonic() - stepped_s < 240, "the step back held the job up")
    trial.require(not trial.failed_phases(job_id), f"a phase failed: {trial.failed_phases(job_id)[:1]}")


def skew_fault() -> Fault:
    return Fault("8a", "machines' clocks 5 min ahead and behind", machines_of_other_times)


def step_fault(file: Path) -> Fault:
    return Fault(
        "8b",
        "the servers' clock steps back by 5 min",
        lambda trial: server_steps_back(trial, file),
        without=ORDER_BY_CLOCK,
    )
