"""The control plane's environment: each bad value is named, together with the accepted ones."""

from collections.abc import Callable

import pytest

from seamlessflow.control_plane.env import (
    DatabaseAddress,
    Environment,
    InvalidSetting,
    database_address_parse,
)
from seamlessflow.core.protocol.live_events import redis_url


@pytest.mark.parametrize(
    "read,value,accepted",
    [
        (lambda env: env.database("X"), "mysql://host/db", "postgresql://"),
        (lambda env: env.database("X"), "postgresql://host", "postgresql://"),
        (lambda env: env.broker_url("X"), "amqp://host", "redis+socket://"),
        (lambda env: env.http_url("X", default=""), "localhost:8000", "http://host"),
        (lambda env: env.folders("X"), "relative", "absolute folders"),
        (lambda env: env.integer("X", default=1, minimum=1), "0", "from 1 on"),
        (lambda env: env.integer("X", default=1), "many", "whole number"),
        (lambda env: env.one_of("X", default="a", choices=("a", "b")), "c", "a, b"),
        (lambda env: env.secret("X"), "short", "32 characters"),
    ],
)
def test_a_bad_value_is_refused_with_the_accepted_ones(
    read: Callable[[Environment], object], value: str, accepted: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        read(Environment({"X": value}))

    assert str(caught.value).startswith("X is ")
    assert accepted in str(caught.value)


def test_a_missing_value_is_named_and_a_secret_is_never_shown() -> None:
    with pytest.raises(InvalidSetting, match="X is not set"):
        Environment({}).database("X")
    with pytest.raises(InvalidSetting) as caught:
        Environment({"X": "hunter2"}).secret("X")
    assert "hunter2" not in str(caught.value)


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
