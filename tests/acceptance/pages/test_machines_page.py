"""The machines page with an invented machine that is in quarantine."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.browser import accessibility_faults
from tests.acceptance.made_up_job import MadeUpJob, Row

pytestmark = pytest.mark.browser

NOW = 1_790_000_000_000
HOUR_MS = 3_600_000
WHY = "phases of 2 jobs failed here which work elsewhere; last failure: an illegal memory access was encountered"


class QuarantinedMachine(MadeUpJob):
    def _machine(self) -> Row:
        quarantine = {"since": NOW, "until": NOW + HOUR_MS, "reason": WHY, "num_quarantines": 3}
        return super()._machine() | {"quarantine": quarantine, "health": "quarantined"}


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with QuarantinedMachine(now=NOW).open(browser, "/machines") as opened:
        yield opened


def test_why_a_machine_is_in_quarantine_has_a_row_of_its_own(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    rows = page.get_by_test_id("machines").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("quarantined")
    expect(rows.nth(1)).to_contain_text(WHY)
    box = page.get_by_test_id("quarantine").bounding_box()
    assert box is not None
    assert box["width"] > 600, "a sentence has no narrow column"
    assert accessibility_faults(page) == []
