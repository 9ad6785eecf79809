"""What a runner asks for while a gateway dies goes to nobody else, and nothing that it never received is lost."""

import asyncio
from typing import Any

import aiohttp
import pytest

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_fleet import FleetGateway, GatewayFleet
from tests.integration.data_plane.gateways.test_several_gateways import begin
from tests.integration.data_plane.gateways.test_what_gateways_share import phase_post

LEASE = "/runner/v1/groups/lease"
ASKED_FOR_S = 1.0  # several polls of the gateway that is asked


async def test_a_gateway_that_dies_while_it_passes_a_request_on_takes_nothing_with_it(
    gateway_fleet: GatewayFleet,
) -> None:
    fleet, world = gateway_fleet, gateway_fleet.world
    await begin(fleet, 2, algorithm={"max_staleness": 0})
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent)
    owner, other = await _owner_of_job(fleet, agent)
    asking = asyncio.create_task(_ask(fleet, other, agent))
    await asyncio.wait({asking}, timeout=ASKED_FOR_S)
    assert not asking.done(), "no group may begin"

    fleet.kill(other)
    with pytest.raises(aiohttp.ClientError):
        await asking
    world.base_url = owner.url
    for session in groups[0]["sessions"]:  # now its slots may run again
        await world.finish(agent, session["session_id"], failure="drained", is_requeued=True)
    await asyncio.sleep(ASKED_FOR_S)

    assert world.sql("SELECT count(*) FROM trajectory_session WHERE attempt = 2") == [(0,)]
    (again,) = await world.lease(agent)
    assert again["group_id"] == groups[0]["group_id"]


async def _owner_of_job(fleet: GatewayFleet, agent: PhaseClaims) -> tuple[FleetGateway, FleetGateway]:
    """Return the gateway that answers the job's runners, and the one that passes their requests on."""
    first, second = fleet.gateways
    before = await fleet.metric(first, "forwarded_total")
    await phase_post(fleet, first, agent, LEASE, {"max_sessions": 0, "wait_s": 0.0})
    is_passed_on = await fleet.metric(first, "forwarded_total") > before
    return (second, first) if is_passed_on else (first, second)


async def _ask(fleet: GatewayFleet, gateway: FleetGateway, agent: PhaseClaims) -> Any:
    return await phase_post(fleet, gateway, agent, LEASE, {"max_sessions": 8, "wait_s": 10.0})
