"""Measures the forest page in a real Chromium: 30,000 nodes with one branch of 100,000 tokens,
compared with 40 nodes.

First paint is the time from the navigation to the first frame of the canvas that contains nodes,
with an empty browser cache. Panning and zooming are driven by events, one per frame, for some
seconds each; frames per second are those that the browser asks scripts to draw. JavaScript is what
the page has loaded by then, in bytes on the network.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from seamlessflow.core.types.ids import IdKind, show_id
from tests.benchmarks.report import Bound, Goal, Measured, Row
from tests.benchmarks.web_world import WebWorld, web_world
from tests.fixtures.forests import ForestShape, forest_write
from tests.fixtures.repository import ROOT

BASELINE = "a forest of 40 nodes"
LARGE = ForestShape(num_sessions=64, num_nodes=30_000, long_branch=100_000)
SMALL = ForestShape(num_sessions=4, num_nodes=40)
NUM_REPEATS = 3
MOVE_S = 3.0
VIEWPORT = {"width": 1280, "height": 900}
PAINT_TIMEOUT_S = 30.0
# Software rendering, speaking to nothing but the platform: as in the tests.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PAINT_GOAL = Goal(1.5, Bound.AT_MOST)
FRAMES_GOAL = Goal(45)
SCRIPT_GOAL = Goal(300, Bound.AT_MOST)
NONE_GOAL = Goal(0, Bound.AT_MOST)
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"

_PAINTED = "performance.getEntriesByName('forest-painted')[0]?.startTime"
_SCRIPT_KB = """performance.getEntriesByType('resource').filter((one) => /\\.js(\\?|$)/.test(one.name))
    .reduce((sum, one) => sum + one.encodedBodySize, 0) / 1000"""
# One event per frame, as a hand would produce them, and the resulting frames.
_MOVE = """
async ([kind, seconds]) => {
  const canvas = document.querySelector('.forest-canvas canvas');
  const box = canvas.getBoundingClientRect();
  const at = (share) => ({ clientX: box.left + box.width * share, clientY: box.top + box.height * 0.5,
                           pointerId: 1, button: 0, buttons: 1, bubbles: true });
  canvas.setPointerCapture = () => {};
  let frames = 0;
  const start = performance.now();
  if (kind === 'pan') canvas.dispatchEvent(new PointerEvent('pointerdown', at(0.5)));
  while (performance.now() - start < seconds * 1000) {
    const phase = ((performance.now() - start) / 1000) * Math.PI;
    if (kind === 'pan') canvas.dispatchEvent(new PointerEvent('pointermove', at(0.5 + 0.35 * Math.sin(phase))));
    else canvas.dispatchEvent(new WheelEvent('wheel', { ...at(0.4), deltaY: Math.sin(phase) > 0 ? -90 : 90,
                                                         bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(done));
    frames += 1;
  }
  if (kind === 'pan') canvas.dispatchEvent(new PointerEvent('pointerup', at(0.5)));
  return frames / ((performance.now() - start) / 1000);
}
"""
_AXE_RUN = """async () => (await axe.run()).violations
    .filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id)"""


async def measure() -> list[Row]:
    # The measured build is that of the sources; axe comes with the tools.
    subprocess.run([sys.executable, "deploy/local/frontend.py", "--tools"], cwd=ROOT, check=True)  # noqa: ASYNC221
    async with web_world() as world, _browser() as browser:
        groups = {}
        for index, (name, shape) in enumerate({"large": LARGE, "small": SMALL}.items()):
            data = world.data
            forest = await forest_write(
                data.database_url, project_id=data.project_id, job_id=data.job_id, shape=shape, index=index
            )
            groups[name] = show_id(IdKind.GROUP, forest.group_id)
        cookies = await _sign_in(browser, world)
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(NUM_REPEATS):
            for name, group in groups.items():
                for metric, value in (await _visit(browser, world, cookies, group)).items():
                    values[metric][name].append(value)
    return _rows(values)


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise RuntimeError("no Chromium is on PATH (apt-get install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield browser
        await browser.close()


async def _sign_in(browser: Browser, world: WebWorld) -> Any:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(await asyncio.to_thread(world.sign_in_link))
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{world.base_url}/**")
    cookies = await context.cookies()
    await context.close()
    return cookies


async def _visit(browser: Browser, world: WebWorld, cookies: Any, group: str) -> dict[str, float]:
    """One visit with an empty cache."""
    context = await browser.new_context(viewport=VIEWPORT)  # type: ignore[arg-type]
    await context.add_cookies(cookies)
    page = await context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"{world.base_url}/groups/{group}")
    await _painted(page)
    sample = {
        "first_paint_s": await page.evaluate(_PAINTED) / 1000,
        "script_kb": await page.evaluate(_SCRIPT_KB),
    }
    for mode, label in (("version", "Policy version"), ("logprob", "Log probability")):
        await page.get_by_label(label).check()
        for kind in ("zoom", "pan"):
            sample[f"{kind}_{mode}_fps"] = await page.evaluate(_MOVE, [kind, MOVE_S])
    sample["axe_serious"] = len(await _axe(page, complaints))
    sample["complaints"] = len(complaints)
    for complaint in complaints:
        print(f"console: {complaint}")
    await context.close()
    return sample


async def _painted(page: Page) -> None:
    """Check from outside, because the page's content security policy forbids evaluating scripts."""
    async with asyncio.timeout(PAINT_TIMEOUT_S):
        while await page.evaluate(_PAINTED) is None:
            await page.wait_for_timeout(20)


async def _axe(page: Page, complaints: list[str]) -> Sequence[str]:
    await page.evaluate(await asyncio.to_thread(Path.read_text, AXE))
    found: list[str] = await page.evaluate(_AXE_RUN)
    if found:
        print(f"axe: {json.dumps(found)}")
    return found


def _rows(values: dict[str, dict[str, list[float]]]) -> list[Row]:
    def row(metric: str, unit: str, name: str, goal: Goal | None) -> Row:
        sides = values[metric]
        return Row(name, unit, Measured(sides["large"]), BASELINE, Measured(sides["small"]), goal)

    return [
        row("first_paint_s", "s", "first paint of the forest", PAINT_GOAL),
        row("zoom_version_fps", "1/s", "frames while zooming, versions", FRAMES_GOAL),
        row("pan_version_fps", "1/s", "frames while panning, versions", FRAMES_GOAL),
        row("zoom_logprob_fps", "1/s", "frames while zooming, logprobs", FRAMES_GOAL),
        row("pan_logprob_fps", "1/s", "frames while panning, logprobs", FRAMES_GOAL),
        row("script_kb", "kB", "JavaScript until then, compressed", SCRIPT_GOAL),
        row("complaints", "", "console errors and warnings", NONE_GOAL),
        row("axe_serious", "", "serious findings of axe", NONE_GOAL),
    ]
