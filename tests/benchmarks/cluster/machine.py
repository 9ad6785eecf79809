"""The real supervisor with the benchmark's agents, and with real engines and trainer."""

import sys

from seamlessflow_workers.supervisor.__main__ import main

AGENTS = (sys.executable, "-m", "tests.benchmarks.cluster.long_tail")

if __name__ == "__main__":
    sys.exit(main(agent_command=AGENTS))
