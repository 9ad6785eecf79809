"""The command in a machine's image, which contains no database driver, no broker client of the
planes and no Django."""

import subprocess
import sys

NOT_ON_A_MACHINE = ("psycopg", "django", "starlette", "uvicorn", "channels")
PROGRAM = """
import sys
for name in {names!r}:
    sys.modules[name] = None  # importing it now fails as if it were not installed
from seamlessflow.cli.main import main
sys.argv = ["seamlessflow", "worker", "--name", "a", "--tags", "rollout", "--control-plane-url", "http://127.0.0.1:1"]
main()
"""


def test_the_worker_starts_without_the_packages_that_only_the_planes_have() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(names=NOT_ON_A_MACHINE)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("error: --token-file is missing")
