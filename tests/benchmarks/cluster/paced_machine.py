"""The real supervisor with the benchmark's agents, and with an engine and a trainer that sleep instead of computing."""

import sys

from seamlessflow.core.job_spec import EngineKind
from seamlessflow_workers.supervisor.__main__ import main
from tests.benchmarks.cluster.machine import AGENTS
from tests.fakes.broken_machine import machine_name_note

PACED_ENGINE = (sys.executable, "-m", "tests.fakes.paced_engine")
PACED_TRAINER = (sys.executable, "-m", "tests.fakes.paced_trainer")

if __name__ == "__main__":
    machine_name_note(sys.argv)
    engines = {EngineKind.EMBEDDED: PACED_ENGINE}
    sys.exit(main(agent_command=AGENTS, engine_commands=engines, train_command=PACED_TRAINER))
