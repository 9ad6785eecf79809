"""The queue page with invented entries: what it says, where its offers lead, and what an edit sends."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.acceptance.browser import accessibility_faults
from tests.acceptance.made_up_job import JOB_ID, MACHINE_ID, MadeUpJob, Row

pytestmark = pytest.mark.browser

NOW = 1_790_000_000_000
OTHER_ID = "job_01m815vwcneyzb0cz138xvgf87"


def holder(machine: str, sentence: str, **rest: object) -> Row:
    return {
        "machine": machine, "machine_id": MACHINE_ID + machine[-1], "job_id": None, "job_name": None,
        "until": "quantum", "within_s": 360.0, "sentence": sentence,
    } | rest  # fmt: skip


def offer(kind: str, sentence: str, **rest: object) -> Row:
    return {
        "kind": kind, "sentence": sentence, "may_do": True, "num_stopped_jobs": 0, "within_s": None,
        "at_most_s": None, "machine_id": None, "tags": [], "value": None, "pool": "",
    } | rest  # fmt: skip


WAITING: Row = {
    "job_id": JOB_ID, "job_name": "calculator-h200", "project": "default", "state": "queued", "created_by": "ann",
    "generation": 4, "priority": 0, "may_edit": True, "place": 1, "waiting_s": 260.0, "lack": "floor",
    "sentence": "It begins as soon as it has a machine for everything that it needs.",
    "shortages": [{
        "role": "rollout", "num_machines": 1, "tags": ["rollout"], "num_fitting": 2,
        "sentence": "It lacks 1 machine to roll out, with the tag rollout.",
        "holders": [
            holder("m1", 'm1 works for the job "essays" until its quantum ends in 6 min; it then gives way right '
                         "after it publishes.", job_id=OTHER_ID, job_name="essays"),
            holder("m2", "m2 works for a job of another project until that job ends, pauses or needs fewer machines."),
        ],
    }],
    "unblocks": [
        offer("retag", "Give alpha the tag gpu: the job would begin at once, and no other job stops for it.",
              machine_id=MACHINE_ID, tags=["gpu"]),
        offer("wait", "Wait: its turn comes in 6 min at the earliest and in 11 min at the latest."),
        offer("priority", 'Raise its priority from 0 to 1: the job would begin at once, and the job "essays" stops '
                          "for it.", value=1, num_stopped_jobs=1),
    ],
}  # fmt: skip
AT_WORK: Row = WAITING | {
    "job_id": OTHER_ID, "job_name": "essays", "state": "running", "place": None, "waiting_s": 0.0,
    "lack": "engines", "may_edit": False, "sentence": "It is at work and could use more machines that roll out.",
    "shortages": [], "unblocks": [],
}  # fmt: skip


@dataclass
class MadeUpQueue(MadeUpJob):
    """A queue, and the edits that the page sent: method, path, generation and body."""

    entries: list[Row] = field(default_factory=list)
    edits: list[tuple[str, str, str, Row]] = field(default_factory=list)

    def _rest(self, path: str, query: Row) -> Row | None:
        return self._page(self.entries, query) if path == "/queue" else super()._rest(path, query)

    def _answer(self, route: Route) -> None:
        request = route.request
        if request.method == "PATCH":
            generation = request.headers["if-match"]
            self.edits.append((request.method, request.url, generation, json.loads(request.post_data or "")))
            self.entries = []
        super()._answer(route)


@pytest.fixture
def queue() -> MadeUpQueue:
    return MadeUpQueue(now=NOW, entries=[WAITING, AT_WORK])


@pytest.fixture
def page(browser: Browser, queue: MadeUpQueue) -> Iterator[Page]:
    with queue.open(browser, "/queue") as opened:
        yield opened


def test_the_queue_says_what_each_job_lacks_who_has_it_and_what_is_cheapest(page: Page) -> None:
    cards = page.get_by_test_id("queue").locator("section")
    expect(cards).to_have_count(2)
    first = cards.first
    expect(first).to_contain_text("calculator-h200")
    expect(first).to_contain_text("waits for 4 min 20 s")
    expect(first).to_contain_text("m2 works for a job of another project")
    expect(first.get_by_role("link", name="Open the job essays")).to_have_attribute(
        "href", f"/jobs/{OTHER_ID}"
    )
    expect(first.get_by_role("listitem").filter(has_text="Cheapest")).to_contain_text(
        "Give alpha the tag gpu"
    )
    expect(cards.last).to_contain_text("At work")
    expect(cards.last.get_by_role("button")).to_have_count(0)
    assert accessibility_faults(page) == []


def test_a_retag_opens_the_machine_with_the_tag_to_add(page: Page) -> None:
    page.get_by_role("link", name="Retag…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Edit alpha")
    expect(dialog.locator(".tag")).to_have_text(["gpu"])


def test_a_priority_is_raised_on_the_generation_that_was_seen(page: Page, queue: MadeUpQueue) -> None:
    page.get_by_role("button", name="Raise…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Priority (-100 to 100)")).to_have_value("1")
    assert accessibility_faults(page) == []
    dialog.get_by_label("Priority (-100 to 100)").fill("101")
    expect(dialog.get_by_role("button", name="Set the priority")).to_be_disabled()
    dialog.get_by_label("Priority (-100 to 100)").fill("3")
    dialog.get_by_label("Reason").fill("a deadline")
    dialog.get_by_role("button", name="Set the priority").click()

    expect(page.get_by_role("heading", name="No job waits")).to_be_visible()
    ((_, url, generation, body),) = queue.edits
    assert url.endswith(f"/api/v1/jobs/{JOB_ID}")
    assert (generation, body) == ('"4"', {"priority": 3, "reason": "a deadline"})
