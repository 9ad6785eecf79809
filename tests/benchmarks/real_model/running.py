"""Runs the job on a new installation and reads what came of it.

Takes sizes; returns rows. What the job did is told on standard output. Raises RunFailed if the job did not complete, if
its audit finds a fault, or if an evaluation is missing; WrongPrompt if a prompt is not what the model's own template
makes of the question; NoModel if the model cannot be had.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seamlessflow.client import Client
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.benchmarks.cluster.running import RunFailed
from tests.benchmarks.cost import WORK
from tests.benchmarks.real_model.job import Size, job_spec, tasks_write
from tests.benchmarks.real_model.memory import MemoryWatch
from tests.benchmarks.real_model.readings import METRICS, Reading, rows_of
from tests.benchmarks.real_model.transcripts import OwnText, Transcript, transcripts_read
from tests.benchmarks.real_model.wheel import model_unpack
from tests.benchmarks.report import Row
from tests.fixtures.repository import ROOT

WHEELS = ROOT / "build" / "bench" / "real_model"
FULL = Size(num_updates=30, num_held_out=64, groups_per_batch=4, group_size=8)
SHORT = Size(num_updates=2, num_held_out=8, groups_per_batch=2, group_size=4)
LAYOUT = "multiplexed"
TIMEOUT_S = 45 * 60.0
POLL_S = 2.0
NUM_SHOWN = 4  # answers of each evaluation


def run(size: Size) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = model_unpack(WHEELS, root / "model")
        spec = job_spec(model, tasks_write(root, num_held_out=size.num_held_out), size)
        platform = new_platform(root / "home", model_root=root)
        clock = _Clock()
        platform.start("--layout", LAYOUT)
        try:
            with platform.client() as client:
                return rows_of(_train(platform, client, spec, size, clock))
        finally:
            platform.stop()


class _Clock:
    """Seconds since the benchmark began."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def say(self, said: str) -> None:
        sys.stdout.write(f"[{self.now_s:4.0f} s] {said}\n")
        sys.stdout.flush()


def _train(
    platform: PlatformProcess, client: Client, spec: Mapping[str, Any], size: Size, clock: _Clock
) -> Reading:
    with MemoryWatch(platform) as memory:
        began_s = clock.now_s
        job_id = client.job_submit(spec)["id"]
        submission_s = clock.now_s - began_s
        clock.say(f"converted and submitted in {submission_s:.0f} s")
        _follow(client, job_id, clock)
    model = _converted(platform)
    before, after = _evaluations(client, job_id, size)
    _transcripts_check(platform, client, job_id, OwnText(model), (before, after))
    versions = client.job_part(job_id, "versions", limit=200)["results"]
    return Reading(
        points=_points(client, job_id),
        published_s=sorted(
            datetime.fromisoformat(version["published_at"]).timestamp()
            for version in versions
            if version["version"] > 0
        ),
        before=before,
        after=after,
        weights_bytes=sum(file.stat().st_size for file in model.glob("*.safetensors")),
        work_bytes=memory.peak_bytes(WORK),
        whole_bytes=memory.peak_bytes(),
        submission_s=submission_s,
        whole_s=clock.now_s,
    )


def _follow(client: Client, job_id: str, clock: _Clock) -> None:
    """Wait until the job has ended, and say what it publishes. Raises RunFailed."""
    version, job = -1, client.job_get(job_id)
    for job in client.job_watch(job_id, every_s=POLL_S):
        if job["latest_version"] != version:
            version = job["latest_version"]
            clock.say(f"{job['state']}, version {version}")
        if clock.now_s > TIMEOUT_S:
            raise RunFailed(f"the job is {job['state']} at version {version} after {TIMEOUT_S:.0f} s")
    if job["state"] != "completed":
        raise RunFailed(f"the job ended {job['state']}: {job['state_reason']}")
    audit = client.job_part(job_id, "audit")
    if not audit["ok"]:
        raise RunFailed(f"the audit found {audit}")


def _evaluations(client: Client, job_id: str, size: Size) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of the base model and of the last version, both whole. Raises RunFailed."""
    found = sorted(client.job_part(job_id, "evaluations")["results"], key=lambda row: row["version"])
    is_whole = [row["num_rewarded"] == size.num_held_out for row in found]
    if [row["version"] for row in found] != [0, size.num_updates] or not all(is_whole):
        raise RunFailed(f"versions 0 and {size.num_updates} were to be measured, not {found}")
    return found[0], found[1]


def _points(client: Client, job_id: str) -> dict[str, list[float]]:
    """Return the values of each metric, in order of updates. Raises RunFailed if one has none."""
    points = client.job_metric_points(job_id, METRICS)
    if missing := [name for name in METRICS if name not in points]:
        raise RunFailed(f"no update published {', '.join(missing)}")
    return {name: points[name]["value"] for name in METRICS}


def _converted(platform: PlatformProcess) -> Path:
    """Return the model folder that the platform made, the only one among the uploads."""
    (config,) = (platform.home.artifacts / "uploads").rglob("config.json")
    return config.parent


def _transcripts_check(
    platform: PlatformProcess,
    client: Client,
    job_id: str,
    text: OwnText,
    evaluations: Sequence[Mapping[str, Any]],
) -> None:
    """Compare every prompt with the model's own, and show some answers. Raises WrongPrompt."""
    folder = platform.home.root / "trajectories"
    client.trajectories_export(job_id, folder)
    transcripts = transcripts_read(folder)
    text.check(transcripts)
    sys.stdout.write(f"the prompts of {len(transcripts)} sessions are those of the model's own template\n")
    for evaluation in evaluations:
        sys.stdout.write(f"version {evaluation['version']}:\n")
        measured = [one for one in transcripts if one.evaluation_version == evaluation["version"]]
        sys.stdout.writelines(f"  {_shown(one, text)}\n" for one in measured[:NUM_SHOWN])


def _shown(transcript: Transcript, text: OwnText) -> str:
    return f"{transcript.question!r}: {text.show(transcript.answer_ids)!r}, reward {transcript.reward:.0f}"
