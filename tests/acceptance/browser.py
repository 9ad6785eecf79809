"""Fixtures for a visitor's Chromium in acceptance tests.

The visitor is signed in by a one-time link, complaints of the browser are recorded, and the
connection to the live socket can be cut. `conftest` offers the fixtures to every test of this
folder. Without a Chromium the tests are skipped with a message, and fail under CI.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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

from tests.acceptance.platform_process import PlatformProcess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# A browser that connects only to the platform.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
AXE = Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")


@contextmanager
def browser_opened() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is on PATH (apt-get install chromium)")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_opened() as opened:
        yield opened


@pytest.fixture
def complaints() -> list[str]:
    """Return what the browser wrote to its console, and the pages that were refused."""
    return []


@pytest.fixture(scope="module")
def visitor(browser: Browser, platform: PlatformProcess) -> BrowserContext:
    return visitor_signed_in(browser, platform)


def visitor_signed_in(browser: Browser, platform: PlatformProcess) -> BrowserContext:
    """Return a browser context that is signed in by a link of its own, because each link works once."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(platform.sign_in_link())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    page.close()
    return context


@pytest.fixture
def page(visitor: BrowserContext, platform: PlatformProcess, complaints: list[str]) -> Iterator[Page]:
    page = visitor.new_page()
    page.on("console", lambda message: note(complaints, message))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: note_refusal(complaints, answer))
    page.goto(web_url(platform))
    expect(page.get_by_test_id("line"), str(complaints)).to_have_text("live", timeout=15_000)
    yield page
    page.close()


class Line:
    """The connection to the live socket, which a test can cut. Create it before the page opens its
    socket."""

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


def web_url(platform: PlatformProcess) -> str:
    run = platform.home.read_run()
    assert run is not None
    return run.web_url


def accessibility_faults(page: Page) -> list[str]:
    """Return what axe rates as serious or worse on the current page."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed (make frontend-check installs it)")
    # The debugger evaluates it, so the page's content security policy does not apply.
    page.evaluate(AXE.read_text())
    result = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [
        f"{found['id']} ({found['impact']}): {found['help']}: {[node['target'] for node in found['nodes'][:3]]}"
        for found in result
        if found["impact"] in SERIOUS
    ]


def note_refusal(complaints: list[str], answer: Response) -> None:
    if answer.status >= 400:
        complaints.append(f"{answer.status} {answer.url}")


def note(complaints: list[str], message: ConsoleMessage) -> None:
    if message.type in ("error", "warning"):
        complaints.append(message.text)
