"""A visitor watches the forest of a group while it decodes: branches grow, and two policy versions have two colours.

The agents are here: an `external` job whose long streams run across the updates that short sessions bring about.
"""

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from playwright.sync_api import Browser, Page, expect

from seamlessflow.client import Client
from tests.acceptance.browser import note, note_refusal
from tests.acceptance.platform_process import PlatformProcess, eventually
from tests.acceptance.test_streams_across_updates import MAX_TOKENS, external_spec, feed, session_open

pytestmark = pytest.mark.browser
GROWTH_TIMEOUT_S = 90.0

# Swatches of the legend whose colour is somewhere on the canvas.
_VERSIONS_PAINTED = """() => {
  const canvas = document.querySelector('.forest-canvas canvas');
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < pixels.length; at += 4) seen.add(`rgb(${pixels[at]}, ${pixels[at + 1]}, ${pixels[at + 2]})`);
  return [...document.querySelectorAll('.forest-legend .legend-entry')]
    .filter((entry) => /^\\d+$/.test(entry.textContent.trim()))
    .filter((entry) => seen.has(getComputedStyle(entry.querySelector('i')).backgroundColor))
    .map((entry) => entry.textContent.trim());
}"""


class Agents:
    """Long answers in one group after another, and short sessions that feed the trainer; in a thread of their own."""

    def __init__(self, platform: PlatformProcess, job_id: str) -> None:
        self._platform = platform
        self._job_id = job_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.talking: str | None = None  # a session whose answer is in the making
        self.failure: BaseException | None = None

    def __enter__(self) -> "Agents":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._drive())
        except BaseException as error:  # told to the test by whoever leaves the context
            self.failure = error

    async def _drive(self) -> None:
        async with httpx.AsyncClient(base_url=self._platform.gateway_url, timeout=60) as http:
            feeding = asyncio.create_task(feed(http, self._platform, self._job_id))
            for number in itertools.count():
                if self._stop.is_set():
                    break
                pair = [
                    await session_open(http, self._platform, self._job_id, f"watched-{number}")
                    for _ in range(2)
                ]
                self.talking = pair[0]["session"]
                await asyncio.gather(*map(talk, pair))
                self.talking = None
            feeding.cancel()
            await asyncio.wait([feeding])


async def talk(session: dict[str, Any]) -> None:
    async with AsyncOpenAI(api_key=session["api_key"], base_url=session["base_url"], max_retries=0) as agent:
        await agent.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "Talk on."}], max_tokens=MAX_TOKENS
        )


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def page(browser: Browser, platform: PlatformProcess, complaints: list[str]) -> Iterator[Page]:
    """Signed in by a link of its own."""
    (web, *_) = platform.find("seamlessflow.control_plane.asgi")
    made = subprocess.run(
        [sys.executable, "-m", "django", "create_sign_in_link"],
        env=web.environ(),
        check=True,
        capture_output=True,
        text=True,
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: note(complaints, message))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: note_refusal(complaints, answer))
    page.goto(made.stdout.split()[-1])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_load_state()
    yield page
    context.close()


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
    panel = page.get_by_role("complementary", name="The chosen node")
    expect(panel).to_contain_text("from token")
    panel.get_by_role("tab", name="Tokens").click()
    expect(panel.locator(".token-table li").nth(5)).to_contain_text("%")
    assert complaints == []


def watched_until_two_versions(page: Page, client: Client, agents: Agents) -> list[str]:
    """Open a group while it decodes, again and again, until one is seen to grow under two versions."""
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
            painted: list[str] = page.evaluate(_VERSIONS_PAINTED)
            if is_growing and len(painted) >= 2:
                return painted
            page.wait_for_timeout(200)
    pytest.fail(f"no group grew under two versions; growth was seen {num_grown} times")
