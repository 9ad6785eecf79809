"""On the page of a cluster, machines that were registered and never connected are searched; each
name stays beside its lane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.browser import accessibility_faults, web_url
from tests.acceptance.platform_process import PlatformProcess, new_platform

NUM_MACHINES = 14
LANE_PX, AXIS_PX = 40, 22

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def platform(model_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """An installation that no machine has joined."""
    with new_platform(tmp_path_factory.mktemp("home"), model_root=model_root) as installation:
        installation.start("--no-machines")
        with installation.client() as client:
            for number in range(NUM_MACHINES):
                client.machine_register(f"gpu-{number:02}", ["rollout", f"rack={number % 2}"])
        yield installation


def test_each_lane_stays_beside_its_name_in_a_search(
    page: Page, platform: PlatformProcess, complaints: list[str]
) -> None:
    page.goto(web_url(platform) + "/machines")
    rows = page.get_by_test_id("machines").locator("tbody tr")
    lanes = page.get_by_role("img", name="Activity by machine")
    for search, num_found in (
        ("", NUM_MACHINES),
        ("rack=1", NUM_MACHINES // 2),
        ("gpu-03", 1),
        ("rack", NUM_MACHINES),
    ):
        page.get_by_role("searchbox", name="Search machines").fill(search)
        expect(rows).to_have_count(num_found)
        height = num_found * LANE_PX + AXIS_PX
        expect(lanes).to_have_css("height", f"{height}px")
        page.wait_for_function(
            "([canvas, rows]) => canvas.height === rows", arg=[lanes.element_handle(), height]
        )
    expect(rows.first).to_contain_text("not seen")
    assert accessibility_faults(page) == []
    page.get_by_role("searchbox", name="Search machines").fill("no such thing")
    expect(page.get_by_text("No machines match.")).to_be_visible()
    assert complaints == []
