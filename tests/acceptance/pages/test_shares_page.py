"""The shares page with invented projects: what it says of each, and what the edits of an operator send."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.acceptance.browser import accessibility_faults
from tests.acceptance.made_up_job import MadeUpJob, Row

pytestmark = pytest.mark.browser

NOW = 1_790_000_000_000


def share(project: str, **rest: object) -> Row:
    return {
        "project": project, "name": project, "weight": 1.0, "machine_quota": None, "priority_ceiling": 0,
        "queued_jobs_quota": None, "entitled": 2.0, "num_held": 2,
        "num_agent_slots": 0, "num_borrowed": 0.0, "is_short": False, "machine_s": 5400.0,
    } | rest  # fmt: skip


SHARES = [
    share("default", weight=2.0, entitled=4.0, num_held=9, num_agent_slots=3, num_borrowed=2.0),
    share("essays", machine_quota=3, num_held=1, num_borrowed=-1.0, is_short=True),
    share("lab", num_held=0, num_borrowed=-2.0, machine_s=0.0),
]
POOLS = [
    {"name": "default", "num_machines": 6, "is_open": True, "projects": []},
    {"name": "h200", "num_machines": 2, "is_open": False, "projects": ["essays", "lab"]},
]


@dataclass
class MadeUpShares(MadeUpJob):
    """Shares and pools, and the edits that the page sent: method, path and body."""

    edits: list[tuple[str, str, Row]] = field(default_factory=list)

    def _rest(self, path: str, query: Row) -> Row | None:
        rows = {"/shares": SHARES, "/pools": POOLS}.get(path)
        return super()._rest(path, query) if rows is None else self._page(rows, query)

    def _answer(self, route: Route) -> None:
        request = route.request
        if request.method == "GET":
            super()._answer(route)
            return
        address = urlparse(request.url)
        path = address.path.removeprefix("/api/v1")
        body = json.loads(request.post_data) if request.post_data else {"query": address.query}
        self.edits.append((request.method, path, body))
        if request.method == "PATCH":
            route.fulfill(content_type="application/json", body=json.dumps(SHARES[0]))
        else:
            route.fulfill(status=204)


@pytest.fixture
def shares() -> MadeUpShares:
    return MadeUpShares(now=NOW)


@pytest.fixture
def page(browser: Browser, shares: MadeUpShares) -> Iterator[Page]:
    with shares.open(browser, "/shares") as opened:
        yield opened


def test_each_project_has_its_numbers_and_whether_it_borrows_lends_or_is_short(page: Page) -> None:
    rows = page.get_by_test_id("shares").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("borrows 2")
    expect(rows.nth(0).locator("td").nth(4)).to_have_text("6")  # machines
    expect(rows.nth(0).locator("td").nth(5)).to_have_text("3")  # agent slots
    expect(rows.nth(0)).to_contain_text("1 h 30 min")
    expect(rows.nth(1)).to_contain_text("is short of 1")
    expect(rows.nth(2)).to_contain_text("lends 2")
    expect(page.get_by_test_id("pools").locator("tbody tr").first).to_contain_text("every project")
    assert accessibility_faults(page) == []


def test_an_operator_edits_a_weight_and_a_quota_with_a_reason(page: Page, shares: MadeUpShares) -> None:
    page.get_by_role("button", name="Edit essays").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Weight").fill("0")
    expect(dialog.get_by_text("Enter a number from 0.01 to 100.")).to_be_visible()
    dialog.get_by_label("Weight").fill("2.5")
    dialog.get_by_label("Quota of machines").fill("")
    dialog.get_by_label("Priority ceiling").fill("10")
    dialog.get_by_label("Reason").fill("a deadline")
    assert accessibility_faults(page) == []
    dialog.get_by_role("button", name="Apply").click()

    expect(dialog).to_have_count(0)
    body = {"weight": 2.5, "machine_quota": None, "priority_ceiling": 10, "reason": "a deadline"}
    assert shares.edits == [("PATCH", "/shares/essays", body)]


def test_an_operator_grants_a_pool_and_revokes_it(page: Page, shares: MadeUpShares) -> None:
    page.get_by_role("button", name="Grant default").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("only projects with a grant may use it")
    dialog.get_by_label("Project").select_option("lab")
    dialog.get_by_role("button", name="Grant").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Revoke h200 from essays").click()
    dialog.get_by_label("Reason").fill("over")
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog).to_have_count(0)

    assert shares.edits == [
        ("PUT", "/pools/default/grants/lab", {"reason": ""}),
        ("DELETE", "/pools/h200/grants/essays", {"query": "reason=over"}),
    ]
