"""The gateway has a role that cannot change people, and no event waits until another is
committed."""

from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from tests.fixtures.gateway_world import GatewayWorld


async def test_a_gateway_works_with_a_role_that_cannot_change_people(gateway_world: GatewayWorld) -> None:
    await gateway_world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")
    own = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    roles = {role for (role,) in gateway_world.sql(own)}

    assert len(roles) == 1
    (may_change_people,) = gateway_world.sql(
        "SELECT has_table_privilege(%s, 'accounts_user', 'UPDATE')", [roles.pop()]
    )
    assert may_change_people == (False,)


async def test_a_gateway_without_a_role_of_its_own_works_and_says_so(gateway_world: GatewayWorld) -> None:
    gateway_world.gateway_database_url = ""
    await gateway_world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")

    lines = (gateway_world.folder / "gateway.log").read_text().splitlines()
    said = [line for line in lines if "which may change every table" in line]

    assert len(said) == 1
    assert "the gateway connects as the role seamlessflow" in said[0]


@pytest.mark.django_db(transaction=True)
def test_an_event_does_not_notify_a_channel_without_listeners() -> None:
    """At commit, a NOTIFY takes one lock over the whole server, so each event would wait for all
    others."""
    name = connection.settings_dict
    with psycopg.connect(
        host=name["HOST"], user=name["USER"], dbname=name["NAME"], autocommit=True
    ) as listener:
        listener.execute("LISTEN sf_events")
        event_record(kind="test", subject_type=SubjectType.JOB, subject_id=uuid4(), author="test")
        assert list(listener.notifies(timeout=1.0, stop_after=1)) == []
