"""The contract suite of extensions on the example package, run as its author would run it."""

import subprocess
import sys
from pathlib import Path

from tests.fixtures.example_extension import SOURCES, environ_with


def test_example_package_keeps_its_contracts(example_extension: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:django", "-c", str(tmp_path / "pytest.ini"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(SOURCES / "check_contract.py")],
        cwd=tmp_path,
        env=environ_with(example_extension),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 passed" in done.stdout, done.stdout
