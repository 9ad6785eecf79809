"""A job trains on what another job recorded: it learns from the best sessions, and killing its
trainer changes no bit."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard

NUM_EPOCHS = 3
GROUPS_PER_BATCH = 8
GAIN = 0.3  # of 0.8 that were seen
NUM_JUDGED = 100  # tasks


@pytest.fixture(scope="module")
def recorded(platform: PlatformProcess, model_root: Path) -> str:
    """A job whose sessions are trained on."""
    with platform.client() as client:
        spec = calculator_spec(model_root, num_updates=6, groups_per_batch=8)
        return str(client.job_wait(client.job_submit(spec)["id"])["id"])


def imitation_spec(model_root: Path, source: str, *, num_epochs: int = NUM_EPOCHS) -> dict[str, Any]:
    return {
        "name": "imitation",
        "model": {"source": str(model_root / "calculator"), "max_model_len": 256},
        "data": {
            "source": "trajectories",
            "jobs": [source],
            "min_reward": 1.0,
            "best_per_group": 2,
            "num_epochs": num_epochs,
            "groups_per_batch": GROUPS_PER_BATCH,
        },
        "algorithm": {"name": "sft"},
        "train": {"learning_rate": 1e-3, "checkpoint_every_updates": 3, "keep_versions": 100},
    }


def test_imitating_recorded_sessions_raises_accuracy_and_survives_the_death_of_the_trainer(
    platform: PlatformProcess, model_root: Path, recorded: str, tmp_path: Path
) -> None:
    with platform.client() as client:
        spec = imitation_spec(model_root, recorded)
        whole = client.job_wait(client.job_submit(spec)["id"])
        job_id = client.job_submit(spec)["id"]
        eventually(
            lambda: client.job_get(job_id)["latest_version"] >= 2, timeout_s=120, what="the second version"
        )
        kill_hard(platform.find("seamlessflow_workers.train"))
        killed = client.job_wait(job_id)

        assert_whole(client, whole)
        assert_whole(client, killed)
        assert killed["dataset"] == whole["dataset"]
        assert "failed" in {phase["state"] for phase in phases_of(client, killed)}
        folders = [exported(client, job, tmp_path / job["id"]) for job in (whole, killed)]
        assert weights_of(folders[0]) == weights_of(folders[1])

        imitated = exported(client, whole, model_root / "imitated")
        before, after = (
            accuracy(client, model_root, model) for model in (model_root / "calculator", imitated)
        )
    print(f"accuracy {before:.2f} -> {after:.2f}")
    assert after > before + GAIN


def test_a_job_on_recorded_sessions_can_be_paused_resumed_and_cancelled(
    platform: PlatformProcess, model_root: Path, recorded: str
) -> None:
    with platform.client() as client:
        spec = imitation_spec(model_root, recorded, num_epochs=10_000)
        spec["data"]["min_reward"] = 0.0
        job_id = client.job_submit(spec)["id"]

        def reaches(version: int) -> Any:
            return eventually(
                lambda: client.job_get(job_id)["latest_version"] >= version,
                timeout_s=90,
                what=f"version {version}",
            )

        def becomes(state: str) -> Any:
            return eventually(lambda: client.job_get(job_id)["state"] == state, timeout_s=60, what=state)

        reaches(2)
        client.job_edit(job_id, "pause")
        becomes("paused")
        stopped = client.job_get(job_id)
        assert {phase["state"] for phase in phases_of(client, stopped)} == {"ended"}
        client.job_edit(job_id, "resume")
        reaches(stopped["latest_version"] + 2)
        client.job_edit(job_id, "cancel")
        becomes("cancelled")
        report = client.job_part(job_id, "audit")
        assert not [check for check in report["checks"] if not check["ok"]]


def assert_whole(client: Client, job: dict[str, Any]) -> None:
    """Check that every epoch was trained, that the loss fell, and that nothing is lost or
    duplicated."""
    dataset = job["dataset"]
    num_batches = dataset["num_batches_per_epoch"] * NUM_EPOCHS
    assert (job["state"], job["latest_version"]) == ("completed", num_batches)
    metrics = client.job_part(job["id"], "metrics")["metrics"]
    assert metrics["train/epoch"]["value"][-1] == NUM_EPOCHS
    assert sum(metrics["train/num_sessions"]["value"]) == dataset["num_sessions"] * NUM_EPOCHS
    losses, per_epoch = metrics["train/loss"]["value"], dataset["num_batches_per_epoch"]
    assert sum(losses[-per_epoch:]) < 0.9 * sum(losses[:per_epoch])
    assert set(metrics["reward/min"]["value"]) == {1.0}
    assert not {"train/mismatch_mean", "train/ratio_mean", "train/staleness_mean"} & set(metrics)
    report = client.job_part(job["id"], "audit")
    assert not [check for check in report["checks"] if not check["ok"]]
    assert {phase["role"] for phase in phases_of(client, job)} == {"train"}


def phases_of(client: Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = client.job_part(job["id"], "phases")["results"]
    return phases


def exported(client: Client, job: dict[str, Any], folder: Path) -> Path:
    client.version_export(job["id"], job["latest_version"], folder)
    return folder


def weights_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}


def accuracy(client: Client, model_root: Path, model: Path) -> float:
    """Return the share of tasks that a model solves when it samples as in training, from a job that
    changes nothing."""
    spec = calculator_spec(model_root, num_updates=1, learning_rate=0.0)
    spec["model"]["source"] = str(model)
    tasks = model_root / "judged.jsonl"
    tasks.write_text("".join((model_root / "tasks.jsonl").read_text().splitlines(keepends=True)[:NUM_JUDGED]))
    spec["evaluation"] = {"tasks": str(tasks), "samples_per_task": 1}
    job = client.job_wait(client.job_submit(spec)["id"])
    return float(client.job_part(job["id"], "evaluations")["results"][0]["pass_at_1"])
