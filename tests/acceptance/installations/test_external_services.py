"""A job runs on a PostgreSQL and a Valkey that the installation did not start: over TCP, with
passwords, without a superuser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import redis

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.fixtures.outside_services import OutsideServices, outside_services

NUM_UPDATES = 2


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[OutsideServices]:
    with outside_services(tmp_path) as services:
        yield services


@pytest.fixture
def on_outside_services(
    outside: OutsideServices, model_root: Path, tmp_path: Path
) -> Iterator[PlatformProcess]:
    own = new_platform(tmp_path / "home", model_root=model_root)
    with replace(own, environ=own.environ | outside.environment()) as installation:
        installation.start()
        yield installation


def test_a_job_completes_on_an_external_database_and_broker(
    on_outside_services: PlatformProcess, outside: OutsideServices, model_root: Path
) -> None:
    with on_outside_services.client() as client:
        job = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))
        client.job_wait(job["id"])

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
    assert (is_superuser, num_versions) == (False, NUM_UPDATES)
    assert num_nodes > 0
    with redis.Redis.from_url(outside.valkey_url) as client_of_broker:
        commands = client_of_broker.info("commandstats")
        assert commands["cmdstat_brpop"]["calls"] > 0  # doorbells and background work were waited for here
