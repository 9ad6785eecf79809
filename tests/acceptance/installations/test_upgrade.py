"""An installation of an earlier revision, a job running, is taken to this one: the job goes on, and nothing is lost."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import new_platform
from tests.fixtures.repository import ROOT

# The last revision with the former layout of the control plane; its trainers write checkpoints of format 2.
EARLIER = "f58b7b5571e8cade88541881e0991d2082fcdc14"
PARTS = ("platform", "workers", "deploy", "manage.py")
NUM_BEFORE, NUM_UPDATES = 2, 5


@pytest.fixture(scope="session")
def earlier_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the earlier revision, whose pins are those of this environment."""
    if not _is_known():
        _git("fetch", "--depth=1", "origin", EARLIER)
    if not _is_known():
        # A shallow clone cannot have it; a whole one that lacks it is a mistake.
        assert _git("rev-parse", "--is-shallow-repository").stdout.strip() != b"false"
        pytest.skip(f"the revision {EARLIER[:12]} is not in this clone, so no upgrade can be tested")
    folder = tmp_path_factory.mktemp("earlier")
    archive = _git("archive", EARLIER, *PARTS)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def _is_known() -> bool:
    return _git("cat-file", "-e", f"{EARLIER}^{{commit}}").returncode == 0


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


@pytest.mark.needs_history
def test_an_upgraded_installation_goes_on_with_its_job(
    earlier_checkout: Path, model_root: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with new_platform(
        home, model_root=model_root, checkout=earlier_checkout, has_fork_server=False
    ) as earlier:
        earlier.start()
        with earlier.client() as client:
            job_id = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))["id"]
            wait_for_version(client, job_id, NUM_BEFORE)
            before = _record(client, job_id)

    with new_platform(home, model_root=model_root, has_fork_server=False) as upgraded:
        upgraded.start()
        with upgraded.client() as client:
            assert client.job_wait(job_id)["latest_version"] == NUM_UPDATES
            assert_audit_holds(client, job_id)
            after = _record(client, job_id)

    assert _begins_with(after["versions"], before["versions"])
    assert [number for number, _ in after["versions"]] == list(range(NUM_UPDATES + 1))
    assert _begins_with(after["rewards"], before["rewards"])
    assert len(after["rewards"]) == NUM_UPDATES, "rewards went on"


def _record(client: Client, job_id: str) -> dict[str, list[Any]]:
    """Return what the job published and what it was rewarded, in order."""
    versions = client.job_part(job_id, "versions", limit=100)["results"]
    rewards = client.job_metric_points(job_id, ["reward/mean"])["reward/mean"]
    return {
        "versions": sorted((version["version"], version["published_at"]) for version in versions),
        "rewards": sorted(zip(rewards["step"], rewards["value"], strict=True)),
    }


def _begins_with(longer: Sequence[object], shorter: Sequence[object]) -> bool:
    return bool(shorter) and list(longer[: len(shorter)]) == list(shorter)
