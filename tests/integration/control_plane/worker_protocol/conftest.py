"""The worker protocol's tests send statements as the lasting threads of the door do: with values apart from them."""

import pytest
from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor

from seamlessflow.control_plane.common.database.lasting import PREPARED_FROM


@pytest.fixture(autouse=True)
def _statements_as_at_the_door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not {"db", "transactional_db"} & set(request.fixturenames):
        return
    request.getfixturevalue("transactional_db" if "transactional_db" in request.fixturenames else "db")
    connection.ensure_connection()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "server_side_binding", True)
    monkeypatch.setattr(connection.features, "uses_server_side_binding", True)
    monkeypatch.setattr(connection.connection, "cursor_factory", ServerBindingCursor)
    monkeypatch.setattr(connection.connection, "prepare_threshold", PREPARED_FROM)
