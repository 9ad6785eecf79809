"""The checks of set-up before any download, each with one sentence, and its stamp."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import bootstrap


@pytest.mark.parametrize(
    "system,machine,libc,sentence",
    [
        ("darwin", "arm64", "", "SeamlessFlow runs on Linux x86-64; this is darwin arm64."),
        ("linux", "aarch64", "glibc 2.36", "SeamlessFlow runs on Linux x86-64; this is linux aarch64."),
        ("linux", "x86_64", "glibc 2.17", "glibc 2.28 or newer is needed; this system has glibc 2.17."),
        ("linux", "x86_64", "", "glibc 2.28 or newer is needed; this system has another C library."),
    ],
)
def test_an_unsuitable_system_is_refused(system: str, machine: str, libc: str, sentence: str) -> None:
    with pytest.raises(bootstrap.SetupFailed) as failure:
        bootstrap.check_system(system, machine, libc)
    assert str(failure.value) == sentence


@pytest.mark.parametrize("libc", ["glibc 2.28", "glibc 2.36", "glibc 3.0"])
def test_a_suitable_system_passes(libc: str) -> None:
    bootstrap.check_system("linux", "x86_64", libc)


def test_a_full_disk_is_refused_with_both_figures() -> None:
    bootstrap.check_disk(bootstrap.MIN_DISK_BYTES)
    with pytest.raises(
        bootstrap.SetupFailed, match=r"^3\.0 GiB of disk are free .* at least 4 GiB are needed\.$"
    ):
        bootstrap.check_disk(3 * 1024**3)


def fake_python(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_python_that_does_not_run_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_old = fake_python(tmp_path, "python3", "echo 3 9")
    fake_python(tmp_path, "python3.13", "echo 'python3.13: command not found' >&2; exit 127")
    running = fake_python(tmp_path, "python3.12", "echo 3 12")
    monkeypatch.setattr(sys, "executable", str(too_old))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.usable_python() == str(running)


def test_having_no_usable_python_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_python(tmp_path, "python3", "echo 3 9")))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        bootstrap.SetupFailed, match=r"^Python 3\.11 to 3\.13 is needed; .* no other that runs\.$"
    ):
        bootstrap.usable_python()


def test_a_python_without_venv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bootstrap.SetupFailed, match="lacks the modules venv and ensurepip"):
        bootstrap.check_venv_module(str(fake_python(tmp_path, "python3", "exit 1")))


def test_a_finished_set_up_returns_at_once_until_a_pin_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = tmp_path / "app.txt"
    constraints.write_text("numpy==2.4.6\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", constraints)
    assert not bootstrap.is_up_to_date()
    (tmp_path / "setup-stamp").write_text(bootstrap.wanted_stamp())
    assert bootstrap.is_up_to_date()
    constraints.write_text("numpy==2.5.5\n")
    assert not bootstrap.is_up_to_date()


def test_a_failed_step_names_the_reason_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "LOG", tmp_path / "setup.log")
    command = ["sh", "-c", "echo fetching; echo noise >&2; echo 'ERROR: no such version' >&2; exit 1"]
    with pytest.raises(bootstrap.SetupFailed) as failure:
        bootstrap.step("torch", command)
    assert str(failure.value) == "the step 'torch' failed: ERROR: no such version (see setup.log)"
    assert "fetching" in (tmp_path / "setup.log").read_text()


def test_the_constraints_pin_the_torch_of_every_extra_and_no_vendor_package() -> None:
    pins = bootstrap.CONSTRAINTS.read_text().splitlines()
    assert "torch==2.13.0" in pins
    others = [
        pin for pin in pins if not pin.startswith("nvidia-ml-py")
    ]  # asks the driver, and has no libraries
    assert not [pin for pin in others if pin.startswith(("nvidia", "triton", "-e", "seamlessflow"))]


def test_set_up_runs_without_a_terminal_or_an_open_input() -> None:
    closed = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" "{bootstrap.__file__}" --check <&-'],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
