"""The environment of a process: each bad value is named, together with the accepted ones."""

from typing import Any

import pytest

from seamlessflow.control_plane import variables as control_plane
from seamlessflow.control_plane.common.database.address import DatabaseAddress, database_address_parse
from seamlessflow.core.protocol.live_events import redis_url
from seamlessflow.data_plane.config import InvalidSettings, settings_read
from seamlessflow.runtime import plane_variables, variables
from seamlessflow.runtime.variables import InvalidSetting, Reader, Variable


@pytest.mark.parametrize(
    "variable,value,accepted",
    [
        (control_plane.DATABASE_URL, "mysql://host/db", "postgresql://"),
        (control_plane.DATABASE_URL, "postgresql://host", "postgresql://"),
        (control_plane.BROKER_URL, "amqp://host", "redis+socket://"),
        (control_plane.WEB_URL, "localhost:8000", "http://host"),
        (control_plane.MODEL_ROOTS, "relative", "absolute folders"),
        (control_plane.MAX_UPLOAD_BYTES, "0", "from 1 on"),
        (control_plane.MAX_UPLOAD_BYTES, "-1", "from 1 on"),
        (plane_variables.WATCHDOG_S, "many", "whole number"),
        (plane_variables.WATCHDOG_S, "9" * 400, "whole number"),
        (control_plane.LOG_LEVEL, "LOUD", "DEBUG, INFO"),
        (plane_variables.SECRET_KEY, "short", "32 characters"),
        (plane_variables.ARTIFACT_ROOT, "ftp://host", "s3://bucket"),
        (variables.fraction("X", "", default=0.9), "1.5", "at most 1"),
        (variables.fraction("X", "", default=0.9), "nan", "at most 1"),
    ],
)
def test_a_bad_value_is_refused_with_the_accepted_ones(
    variable: Variable[Any], value: str, accepted: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Reader({variable.name: value}).read(variable)

    assert str(caught.value).startswith(f"{variable.name} is ")
    assert accepted in str(caught.value)


def test_a_missing_value_is_named_and_a_secret_is_never_shown() -> None:
    with pytest.raises(InvalidSetting, match="DATABASE_URL is not set"):
        Reader({"DATABASE_URL": " "}).read(control_plane.DATABASE_URL)
    with pytest.raises(InvalidSetting, match="is 7 characters long") as caught:
        Reader({"SEAMLESSFLOW_SECRET_KEY": "hunter2"}).read(plane_variables.SECRET_KEY)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidSetting) as caught:
        Reader({"DATABASE_URL": "mysql://me:hunter2@host/db"}).read(control_plane.DATABASE_URL)
    assert "hunter2" not in str(caught.value)


def test_the_gateway_reports_all_its_faults_at_once() -> None:
    environ = {"SEAMLESSFLOW_MODE": "open", "SEAMLESSFLOW_RENDER_HELPERS": "0", "EVENTS_URL": "amqp://host"}
    with pytest.raises(InvalidSettings) as caught:
        settings_read(environ, host="127.0.0.1", port=8100)
    for name in (*environ, "DATABASE_URL", "SEAMLESSFLOW_SECRET_KEY"):
        assert f"{name} is " in str(caught.value)


def test_a_database_can_be_on_a_socket_or_on_a_host() -> None:
    assert database_address_parse("postgresql://me@/db?host=/run/pg&sslmode=disable") == DatabaseAddress(
        user="me", password="", host="/run/pg", port="", name="db", options={"sslmode": "disable"}
    )
    assert database_address_parse("postgres://me:p%40ss@host:5433/db") == DatabaseAddress(
        user="me", password="p@ss", host="host", port="5433", name="db", options={}
    )


def test_a_celery_socket_address_is_converted_for_redis() -> None:
    assert redis_url("redis+socket:///run/v.sock?virtual_host=2") == "unix:///run/v.sock?db=2"
    assert redis_url("redis://host:6379/1") == "redis://host:6379/1"
