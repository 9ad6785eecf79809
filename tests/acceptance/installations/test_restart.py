"""An installation that is killed whole: the next start resumes its job, and nothing is lost or doubled."""

from pathlib import Path

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import new_platform

NUM_UPDATES = 10


def test_restarting_the_whole_installation_resumes_the_job(model_root: Path, tmp_path: Path) -> None:
    with new_platform(tmp_path / "home", model_root=model_root) as installation:
        installation.start()
        with installation.client() as client:
            job_id = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))["id"]
            wait_for_version(client, job_id, 3)
        installation.kill()

        installation.start()

        with installation.client() as client:
            assert client.job_wait(job_id)["latest_version"] == NUM_UPDATES
            assert_audit_holds(client, job_id)
