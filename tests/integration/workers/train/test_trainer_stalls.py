"""A trainer whose computing thread hangs gives its phase up, though its event loop answers every question."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from seamlessflow.core.batching.format import Batch
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess, WeightsReference
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.train import trainer as trainer_module
from seamlessflow_workers.train.trainer import Trainer
from seamlessflow_workers.weights.artifacts import JobArtifacts
from tests.fixtures.trainer_harness import CREDENTIAL, JOB, PROJECT, Planes, make_spec

GIVE_UP_S = 20.0


class HangingEngine:
    """Its steps end when `let_go` is set."""

    adapter_config = None

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def step(self, batch: Batch, **_: int) -> dict[str, float]:
        self.let_go.wait()
        return {}

    def reload(self) -> None:
        return


async def test_a_step_that_never_ends_fails_the_phase(
    tmp_path: Path, start_planes: Callable[..., Planes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch: type = getattr(trainer_module, "StepWatch", object)
    monkeypatch.setattr(
        trainer_module, "StepWatch", type("ImpatientWatch", (watch,), {"limit_s": 1.0}), raising=False
    )
    planes, engine, executor = start_planes(), HangingEngine(), ThreadPoolExecutor(1)
    spec = make_spec(num_updates=2)
    warm_process = WarmProcess(
        job_id=JOB,
        project_id=PROJECT,
        role=Role.TRAIN,
        spec=spec,
        model_path="",
        weights=WeightsReference(version=0, uri=""),
        artifact_root=tmp_path.as_uri(),
        gateway_url=planes.url,
        control_plane_url=planes.url,
    )
    made: Any = engine
    trainer = Trainer(
        warm_process=warm_process,
        spec=JobSpec.model_validate(spec),
        engine=made,
        executor=executor,
        report=lambda _doing: None,
        artifacts=JobArtifacts(warm_process.artifact_root, JOB),
    )
    working = asyncio.create_task(trainer.run_phase(phase_order(), asyncio.Event()))
    await asyncio.wait({working}, timeout=GIVE_UP_S)
    engine.let_go.set()  # the thread must end before the test
    executor.shutdown()
    is_given_up = working.done()
    working.cancel()
    (result,) = await asyncio.gather(working, return_exceptions=True)

    assert is_given_up, "the trainer waits for a step that never ends"
    assert "the trainer stalled: a step has been computing for 1 s" in str(result)


def phase_order() -> PhaseOrder:
    return PhaseOrder(
        phase_id=UUID(int=1),
        job_id=JOB,
        project_id=PROJECT,
        role=Role.TRAIN,
        fence=1,
        is_draining=False,
        credential=CREDENTIAL,
        front_token="",
        weights=WeightsReference(version=0, uri=""),
    )
