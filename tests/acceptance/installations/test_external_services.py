"""A job runs on a PostgreSQL and a Valkey that the installation did not start: over TCP, with passwords, without a
superuser.

Two gateways serve it, each is killed while the job trains, and nothing is lost, doubled or charged. The installation
listens on another address than 127.0.0.1, where a second host joins it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import redis

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard, new_platform
from tests.acceptance.steering import web_url
from tests.fixtures.outside_services import OutsideServices, outside_services

NUM_UPDATES = 14  # sessions of gateways that were started again have to be trained
ADDRESS = "127.0.0.2"
NUM_EPOCHS = 4  # two gateways, before and after
SESSIONS_OF_TRAINED_GROUPS = """SELECT s.state, s.is_timeout, s.gateway_epoch FROM trajectory_session s
    JOIN trajectory_group g ON g.id = s.group_id WHERE g.state IN ('ready', 'batched')"""
JOIN_S = 60


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[OutsideServices]:
    with outside_services(tmp_path) as services:
        yield services


@pytest.fixture
def on_outside_services(
    outside: OutsideServices, model_root: Path, tmp_path: Path
) -> Iterator[PlatformProcess]:
    own = new_platform(tmp_path / "home", model_root=model_root, has_fork_server=False)
    with replace(own, environ=own.environ | outside.environment()) as installation:
        installation.start("--listen", ADDRESS, "--gateways", "2")
        yield installation


def test_a_job_completes_on_an_external_database_and_broker_while_its_gateways_are_killed(
    on_outside_services: PlatformProcess, outside: OutsideServices, model_root: Path, tmp_path: Path
) -> None:
    run = on_outside_services.home.read_run()
    assert run is not None
    with on_outside_services.client() as client:
        job_id = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))["id"]
        for version, url in zip((2, 4), (run.gateway_url, *run.more_gateway_urls), strict=True):
            wait_for_version(client, job_id, version)
            kill_hard(on_outside_services.find("seamlessflow.data_plane", "--port", url.rpartition(":")[2]))

        assert client.job_wait(job_id)["latest_version"] == NUM_UPDATES
        assert_audit_holds(client, job_id)

    assert on_outside_services.find("postgres") == on_outside_services.find("valkey") == []
    with psycopg.connect(outside.database_url) as connection:
        (is_superuser,) = (
            connection.execute("SELECT usesuper FROM pg_user WHERE usename = 'flow'").fetchone() or ()
        )
        (num_versions,) = (
            connection.execute("SELECT count(*) FROM policies_policyversion WHERE version > 0").fetchone()
            or ()
        )
        (num_nodes,) = connection.execute("SELECT count(*) FROM trajectory_node").fetchone() or ()
        sessions = connection.execute(SESSIONS_OF_TRAINED_GROUPS).fetchall()
    assert (is_superuser, num_versions) == (False, NUM_UPDATES)
    assert num_nodes > 0
    assert {(state, is_timeout) for state, is_timeout, _ in sessions} == {("closed", False)}
    assert len({epoch for _, _, epoch in sessions}) == NUM_EPOCHS
    with redis.Redis.from_url(outside.valkey_url) as client_of_broker:
        commands = client_of_broker.info("commandstats")
        assert commands["cmdstat_brpop"]["calls"] > 0  # doorbells and background work were waited for here

    _a_second_host_joins(on_outside_services, home=tmp_path / "second")


def _a_second_host_joins(installation: PlatformProcess, *, home: Path) -> None:
    """Run `worker` as a host of its own would, which has only the address and the join token."""
    token = (installation.home.root / "join-token.secret").read_text()
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    url = web_url(installation)
    assert url.startswith(f"http://{ADDRESS}:")
    command = ["worker", "--name", "second", "--tags", "agent", "--control-plane-url", url]
    with subprocess.Popen(
        [sys.executable, "-m", "seamlessflow.cli", *command],
        env=environ | {"SEAMLESSFLOW_JOIN_TOKEN": token, "SEAMLESSFLOW_HOME": str(home)},
    ) as worker:
        try:
            with installation.client() as client:
                eventually(
                    lambda: any(one["name"] == "second" and one["is_up"] for one in client.machine_list()),
                    timeout_s=JOIN_S,
                    what="a heartbeat of the second host",
                )
        finally:
            worker.terminate()
