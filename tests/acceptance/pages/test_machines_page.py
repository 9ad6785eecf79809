"""The machines page with invented machines: one in quarantine, and many that have never connected."""

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.browser import accessibility_faults
from tests.acceptance.made_up_job import MadeUpJob, Row

pytestmark = pytest.mark.browser

NOW = 1_790_000_000_000
HOUR_MS = 3_600_000
NUM_MACHINES = 14
LANE_PX, AXIS_PX = 40, 22
WHY = "phases of 2 jobs failed here which work elsewhere; last failure: an illegal memory access was encountered"


class QuarantinedMachine(MadeUpJob):
    def _machine(self) -> Row:
        quarantine = {"since": NOW, "until": NOW + HOUR_MS, "reason": WHY, "num_quarantines": 3}
        return super()._machine() | {"quarantine": quarantine, "health": "quarantined"}


class ManyMachines(MadeUpJob):
    def _machines(self) -> list[Row]:
        never_seen = {
            "health": "not seen",
            "is_healthy": False,
            "role": "",
            "phase_state": "",
            "version": None,
        }
        return [
            super(ManyMachines, self)._machine()
            | never_seen
            | {
                "id": f"mac_{number:026}",
                "name": f"gpu-{number:02}",
                "tags": ["rollout", f"rack={number % 2}"],
                "labels": [],
            }
            for number in range(NUM_MACHINES)
        ]


def test_why_a_machine_is_in_quarantine_has_a_row_of_its_own(browser: Browser) -> None:
    with QuarantinedMachine(now=NOW).open(browser, "/machines") as page:
        rows = page.get_by_test_id("machines").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("quarantined")
        expect(rows.nth(1)).to_contain_text(WHY)
        box = page.get_by_test_id("quarantine").bounding_box()
        assert box is not None
        assert box["width"] > 600, "a sentence has no narrow column"
        assert accessibility_faults(page) == []


def test_each_lane_stays_beside_its_name_in_a_search(browser: Browser) -> None:
    with ManyMachines(now=NOW).open(browser, "/machines") as page:
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
