"""The control plane's settings as tests and the type checker load them.

They are the real settings, read from an environment in which nothing outside this checkout can be
reached, whatever the shell says: a test must never write to a database that somebody uses. Tests
that need a server ask for the fixtures of `tests.fixtures`. The environment itself is unchanged,
for the programs that tests start.
"""

import os
from pathlib import Path
from unittest import mock

with mock.patch.dict(
    os.environ,
    SEAMLESSFLOW_SECRET_KEY="for-tests-only-" + "0123456789abcdef" * 2,
    DATABASE_URL="postgresql://nobody@/no-database-before-a-fixture-gives-one?host=/nonexistent",
    BROKER_URL="redis+socket:///nonexistent/valkey.sock?virtual_host=0",
    BACKGROUND_BROKER_URL="redis+socket:///nonexistent/valkey.sock?virtual_host=1",
    EVENTS_URL="unix:///nonexistent/valkey.sock?db=2",
    ARTIFACT_ROOT=str(Path(__file__).parents[1] / "build" / "tests" / "artifacts"),
):
    from seamlessflow.control_plane.settings import *  # noqa: F403
