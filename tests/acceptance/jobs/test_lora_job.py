"""A job that trains only an adapter, through the whole platform: it learns, and only the adapter is
published."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from transformers import AutoModelForCausalLM, AutoTokenizer

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_UPDATES = 12
ENDS = 4  # updates at either end whose mean rewards are compared
ADAPTER_FILES = {"adapter_config.json", "adapter_model.safetensors"}
GAIN = 0.2  # of 0.5 that were seen


def test_an_adapter_learns_and_is_published_alone(
    platform: PlatformProcess, model_root: Path, tmp_path: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, groups_per_batch=8, learning_rate=3e-3)
    spec["name"], spec["train"]["lora"] = "lora", {"rank": 8, "alpha": 16}
    with platform.client() as client:
        job = client.job_submit(spec)
        eventually(
            lambda: client.job_get(job["id"])["state"] in TERMINAL_JOB_STATES, timeout_s=270, what="the end"
        )
        ended = client.job_get(job["id"])
        assert ended["state"] == "completed", ended["state_reason"]
        assert client.job_part(job["id"], "audit")["ok"]
        rewards = client.job_part(job["id"], "metrics", names="reward/mean")["metrics"]["reward/mean"]
        values = rewards["value"]
        client.version_export(job["id"], 1, tmp_path / "adapter", form="adapter")
        versions = client.job_part(job["id"], "versions", limit=NUM_UPDATES + 1)["results"]

    model_bytes = sum(file.stat().st_size for file in (model_root / "calculator").glob("*.safetensors"))
    assert all(0 < version["num_bytes"] < 0.3 * model_bytes for version in versions if version["version"])
    assert {file.name for file in (tmp_path / "adapter").iterdir()} == ADAPTER_FILES
    export(platform, job["id"], tmp_path / "exported")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert (
        model.num_parameters()
        == AutoModelForCausalLM.from_pretrained(model_root / "calculator").num_parameters()
    )
    assert len(tokenizer) <= model.config.vocab_size
    print([round(value, 2) for value in values])
    assert sum(values[-ENDS:]) / ENDS > sum(values[:ENDS]) / ENDS + GAIN
    parquet_holds_what_the_api_tells(platform, job["id"], tmp_path / "trajectories")


def parquet_holds_what_the_api_tells(platform: PlatformProcess, job_id: str, folder: Path) -> None:
    run(platform, "trajectories", job_id, folder)
    sessions = pq.read_table(folder / "sessions.parquet").to_pylist()
    nodes = pq.read_table(folder / "nodes.parquet").to_pylist()
    closed = [row for row in sessions if row["state"] == "closed"]
    assert sum(len(row["logprobs"] or ()) for row in nodes) == sum(
        row["num_sampled_tokens"] for row in sessions
    )
    with platform.client() as client:
        for chosen in closed[:: len(closed) // 5]:
            told = client.session_get(chosen["session"], tokens=True)
            kept = [row for row in nodes if row["session"] == chosen["session"]]
            assert [row["token_ids"] for row in kept] == [node["token_ids"] for node in told["nodes"]]
            assert [row["logprobs"] or [] for row in kept] == [node["logprobs"] for node in told["nodes"]]
            assert chosen["reward"] == told["reward"]


def run(
    platform: PlatformProcess, what: str, job_id: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "seamlessflow.cli", "jobs", what, job_id, "--output", str(folder)]
    environment = os.environ | platform.environ | {"SEAMLESSFLOW_HOME": str(platform.home.root)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def export(platform: PlatformProcess, job_id: str, folder: Path) -> None:
    """Export the latest version with the command, and check that a second export refuses to
    overwrite it."""
    done = [run(platform, "export", job_id, folder) for _ in range(2)]
    assert [one.returncode for one in done] == [0, 1], done[0].stderr
    assert f"version {NUM_UPDATES} of {job_id} is in {folder}" in done[0].stdout
    assert "exists already" in done[1].stderr
