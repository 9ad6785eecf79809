"""Two gateways, each killed while a job trains: the job goes on, and nothing is lost, doubled or charged."""

from pathlib import Path

import psycopg

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, kill_hard, new_platform

NUM_UPDATES = 12


def test_a_job_trains_on_while_its_gateways_are_killed(model_root: Path, tmp_path: Path) -> None:
    with new_platform(tmp_path / "home", model_root=model_root) as installation:
        installation.start("--gateways", "2")
        run = installation.home.read_run()
        assert run is not None
        with installation.client() as client:
            job_id = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))["id"]
            for version, url in enumerate([run.gateway_url, *run.more_gateway_urls] * 2, start=1):
                wait_for_version(client, job_id, 2 * version)
                kill_hard(installation.find("seamlessflow.data_plane", "--port", url.rpartition(":")[2]))

            assert client.job_wait(job_id)["latest_version"] == NUM_UPDATES
            assert_audit_holds(client, job_id)
            assert _sessions(installation) == ({"closed"}, 0, True)


def _sessions(installation: PlatformProcess) -> tuple[set[str], int, bool]:
    """Return the states of the sessions of trained groups, how many of them timed out, and whether four epochs
    held some of them."""
    run = installation.home.read_run()
    assert run is not None
    with psycopg.connect(run.database_url) as connection:
        rows = connection.execute(
            """SELECT s.state, s.is_timeout, s.gateway_epoch FROM trajectory_session s
               JOIN trajectory_group g ON g.id = s.group_id
               WHERE g.state IN ('ready', 'batched')"""
        ).fetchall()
    return (
        {state for state, _, _ in rows},
        sum(is_timeout for _, is_timeout, _ in rows),
        len({epoch for _, _, epoch in rows}) >= 4,
    )
