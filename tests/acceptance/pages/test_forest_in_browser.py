"""A visitor watches the forest of a group while it decodes: branches grow, and two policy versions
have two colours.

The agents run here: an `external` job whose long streams continue across the updates that short
sessions cause.
"""

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from seamlessflow.client import Client
from tests.acceptance.outside_agents import Agents, external_spec, versions_painted
from tests.acceptance.platform_process import PlatformProcess, eventually

pytestmark = pytest.mark.browser
GROWTH_TIMEOUT_S = 90.0


def test_a_forest_grows_and_shows_two_versions_while_it_decodes(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(external_spec(model_root))["id"]
        eventually(
            lambda: client.job_get(job_id)["state"] == "running", timeout_s=120, what="the job's start"
        )
        with Agents(platform, job_id) as agents:
            painted = watched_until_two_versions(page, client, agents)
            assert len(painted) >= 2
            expect(page.get_by_test_id("forest-count")).to_contain_text("nodes")
        client.job_edit(job_id, "cancel")
        eventually(
            lambda: client.job_get(job_id)["state"] == "cancelled", timeout_s=60, what="the cancellation"
        )
    # What was seen is history now: the panel tells it in words.
    page.reload()
    page.get_by_role("button", name="Outline").click()
    row = page.get_by_role("treeitem").filter(has_text="versions").first
    row.click()
    panel = page.get_by_role("complementary", name="Selected node")
    expect(panel).to_contain_text("from token")
    panel.get_by_role("tab", name="Tokens").click()
    expect(panel.locator(".token-table li").nth(5)).to_contain_text("%")
    assert complaints == []


def watched_until_two_versions(page: Page, client: Client, agents: Agents) -> list[str]:
    """Open one decoding group after another until one is seen to grow under two versions."""
    origin = page.evaluate("location.origin")
    deadline_at = time.monotonic() + GROWTH_TIMEOUT_S
    num_grown = 0
    while time.monotonic() < deadline_at:
        assert agents.failure is None
        session = agents.talking
        if session is None:
            page.wait_for_timeout(50)
            continue
        page.goto(f"{origin}/groups/{client.session_get(session)['group_id']}")
        count = page.get_by_test_id("forest-count")
        expect(count).to_be_visible(timeout=15_000)
        while agents.talking == session:
            is_growing = "growing" in count.inner_text()
            num_grown += is_growing
            painted = versions_painted(page)
            if is_growing and len(painted) >= 2:
                # The group is not finalized yet: the figure tells what the forest shows.
                figure = page.locator("dl div", has_text="Versions").locator("dd")
                expect(figure).to_have_text(re.compile(r"^\d+–\d+$"))
                return painted
            page.wait_for_timeout(200)
    pytest.fail(f"no group grew under two versions; growth was seen {num_grown} times")
