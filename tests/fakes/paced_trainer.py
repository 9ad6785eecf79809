"""The real trainer around an engine that sleeps (`paced_step_engine`): leases, staleness, checkpoints and publication
are real, and so are the gangs of several machines, each of which sleeps for its share of a step.

Run from the repository's root as `python -m tests.fakes.paced_trainer`, with the trainer's flags.
"""

import time
from pathlib import Path

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.main import main
from tests.fakes.broken_machine import exit_if_broken
from tests.fakes.pace import pace_read
from tests.fakes.paced_gang import gang_worker
from tests.fakes.paced_step_engine import PacedStepEngine


def engine_load(model_path: Path, spec: JobSpec) -> PacedStepEngine:
    pace = pace_read(model_path)
    time.sleep(pace.start_s)
    return PacedStepEngine(spec, pace, model_path)


if __name__ == "__main__":
    exit_if_broken()
    main(engine_load, make_gang_worker=gang_worker)
