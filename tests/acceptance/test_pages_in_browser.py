"""A visitor with a browser: signs in by the one-time link, watches a job move without a reload, opens what it made."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
    WebSocketRoute,
    expect,
    sync_playwright,
)

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# A browser that speaks to nothing but the platform.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
NUM_UPDATES = 5
UPDATE_TIMEOUT_MS = 45_000

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        message = "no Chromium is on PATH (apt-get install chromium)"
        assert os.environ.get("CI") != "true", message
        pytest.skip(message)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the browser said in its console, and pages that were refused."""
    return []


@pytest.fixture(scope="module")
def visitor(browser: Browser, platform: PlatformProcess) -> BrowserContext:
    """Signed in by the link that the installation printed, which opens once."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(re.findall(r"dashboard +(\S+)", (platform.home.logs / "up.log").read_text())[-1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.close()
    return context


@pytest.fixture
def page(visitor: BrowserContext, platform: PlatformProcess, complaints: list[str]) -> Page:
    page = visitor.new_page()
    page.on("console", lambda message: _note(complaints, message))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: _note_refusal(complaints, answer))
    run = platform.home.read_run()
    assert run is not None
    page.goto(run.web_url)
    expect(page.locator("#live-said"), str(complaints)).to_have_text("● live", timeout=15_000)
    return page


def _note_refusal(complaints: list[str], answer: Response) -> None:
    if answer.status >= 400:
        complaints.append(f"{answer.status} {answer.url}")


def _note(complaints: list[str], message: ConsoleMessage) -> None:
    if message.type in ("error", "warning"):
        complaints.append(message.text)


class Line:
    """The way to the live socket, which a test can cut."""

    def __init__(self, page: Page) -> None:
        self._is_cut = False
        self._open: list[WebSocketRoute] = []
        page.route_web_socket("**/ws/live", self._connect)

    def cut(self) -> None:
        self._is_cut = True
        for socket in self._open:
            socket.close()
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    def _connect(self, socket: WebSocketRoute) -> None:
        if self._is_cut:
            socket.close()
        else:
            socket.connect_to_server()
            self._open.append(socket)


def test_a_visitor_watches_a_job_learn(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES))["id"]

    # The job appears in the list by itself; from here on the page is opened once and never loaded again.
    page.locator(f"a[href='/jobs/{job_id}']").click()
    page.evaluate("window.openedOnce = true")
    page.wait_for_function(
        "Number(document.getElementById('version').textContent) >= 2", timeout=UPDATE_TIMEOUT_MS
    )
    expect(page.locator("#reward")).to_have_text(re.compile(r"^−?\d\.\d{3}$"))
    expect(page.locator("#reward-chart .dot").nth(1)).to_be_attached()
    expect(page.locator("#lanes .lane")).to_have_count(3)
    expect(page.locator("#lanes rect").nth(5)).to_be_attached()
    expect(page.locator("#job-state")).to_have_text("completed", timeout=UPDATE_TIMEOUT_MS)
    expect(page.locator("#updates")).to_have_text(str(NUM_UPDATES))
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
    page.get_by_role("button", name=re.compile("Log of the train phase")).first.click()
    expect(page.locator("#log")).to_contain_text("reward/mean")
    assert page.evaluate("window.openedOnce"), "the page was loaded again"

    # A group that was trained, and one of its sessions: the tree shows each token with its version.
    page.locator("#groups tr", has_text="batched").first.locator("a").click()
    page.locator("a[href^='/sessions/']").first.click()
    expect(page.locator(".node.sampled .tokens span").first).to_have_attribute(
        "title", re.compile(r"version \d+")
    )
    expect(page.locator(".versions").first).to_contain_text("version")

    page.get_by_role("link", name="Machines").click()
    for name in ("alpha", "beta", "gamma"):
        expect(page.locator("#machines tr", has_text=name)).to_contain_text("healthy")
    assert complaints == []


def test_a_page_survives_a_lost_connection_and_cancels_only_when_sure(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    spec = calculator_spec(model_root, num_updates=500)
    with platform.client() as client:
        job_id = client.job_submit(spec | {"name": "waits", "placement": {"train": ["gpu=none-has-it"]}})[
            "id"
        ]
    line = Line(page)
    expect(page.locator("#live-said")).to_have_text("● live")  # to leave while it connects is a complaint
    page.locator(f"a[href='/jobs/{job_id}']").click()
    expect(page.locator("#job-reason")).to_contain_text("gpu=none-has-it")

    line.cut()
    expect(page.locator("#live")).to_have_text(re.compile(r"connection lost behind by \d+ s"))
    with platform.client() as client:
        client.job_edit(job_id, "pause")
    line.mend()
    expect(page.locator("#live-said")).to_have_text("● live")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()

    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    with platform.client() as client:
        assert client.job_get(job_id)["desired"] == "run"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-state")).to_have_text("cancelled", timeout=15_000)
    assert complaints == []
