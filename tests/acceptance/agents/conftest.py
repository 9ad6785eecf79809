"""The environments of agent clients and one gateway for all of them.

Where no registry can be reached, the tests are skipped with the reason, and fail under CI.
"""

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from deploy.local.agent_clients import ensure, pins
from tests.acceptance.agents.agents_world import AgentsWorld, agents_world_made, forced_world_made


@pytest.fixture(scope="session")
def require_client() -> Callable[[str], None]:
    """All environments are created at once. The function ends a test whose environment could not be."""
    failures = ensure(pins())

    def require(name: str) -> None:
        if name in failures:
            pytest.skip(f"the agent client {name} cannot be installed: {failures[name]}")

    return require


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def agents_world(
    migrated_template: str, embedded_services: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentsWorld]:
    """One gateway for all clients."""
    folder = tmp_path_factory.mktemp("agents")
    async with agents_world_made(migrated_template, embedded_services, folder) as world:
        yield world


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def forced_world(
    migrated_template: str, embedded_services: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentsWorld]:
    """One gateway with an engine that guides answers, for all clients."""
    folder = tmp_path_factory.mktemp("forced")
    async with forced_world_made(migrated_template, embedded_services, folder) as world:
        yield world
