"""Takes the pictures of `docs/screenshots`: `make screenshots`, about three minutes.

Enters: a Chromium on the PATH. Leaves: each page, light and dark, 1280 and 1920 pixels wide, of a platform that was
started for it and trains a policy meanwhile: machines are retagged in mid-run, so lanes have something to show.
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from seamlessflow.client import Client
from tests.acceptance.browser import ARGUMENTS, CHROMIUM, web_url
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
WIDTHS = (1280, 1920)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
HEIGHT = 900
SETTLE_MS = 1500
NUM_UPDATES_SEEN = 25


def main() -> int:
    if CHROMIUM is None:
        print("screenshots: no Chromium is on the PATH", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as folder,
        _platform(Path(folder)) as platform,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            take(browser, platform, Path(folder) / "models")
        finally:
            browser.close()
    print(f"screenshots: {len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")
    return 0


@contextmanager
def _platform(folder: Path) -> Iterator[PlatformProcess]:
    models = folder / "models"
    models.mkdir()
    example_model(models / "calculator")
    example_tasks(models / "tasks.jsonl")
    platform = new_platform(folder / "home", model_root=models)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def take(browser: Browser, platform: PlatformProcess, models: Path) -> None:
    state = signed_in(browser, platform)
    with platform.client() as client:
        shoot(browser, platform, state, {"jobs-empty": "/"})
        running, group, session = history(client, models)
        pages = {
            "jobs": "/",
            "job": f"/jobs/{running}",
            "job-groups": f"/jobs/{running}/groups",
            "job-logs": f"/jobs/{running}/logs",
            "machines": "/machines",
            "submit": f"/jobs/new?from={running}",
            "group": f"/groups/{group}",
            "session": f"/sessions/{session}",
            "tokens": "/tokens",
        }
        shoot(browser, platform, state, pages)
        client.job_edit(running, "cancel")


def history(client: Client, models: Path) -> tuple[str, str, str]:
    """A finished job, one that waits, one that runs while a machine is retagged: the last, a group, a session."""
    spec = calculator_spec(models, num_updates=30, groups_per_batch=8)
    finished = client.job_submit(spec | {"name": "calculator, 30 updates"})["id"]
    _wait(client, finished, lambda job: job["state"] == "completed")
    waiting = spec | {"name": "needs an H200", "placement": {"train": ["gpu=h200"]}}
    running = client.job_submit(calculator_spec(models, num_updates=600) | {"name": "calculator, long"})["id"]
    client.job_submit(waiting)
    _wait(client, running, lambda job: job["latest_version"] >= NUM_UPDATES_SEEN)
    beta = next(machine for machine in client.machine_list() if machine["name"] == "beta")
    edit = {"tags": ["rollout", "train"]}
    client.machine_edit(beta["id"], changes=edit, reason="may train as well", generation=beta["generation"])
    time.sleep(10)
    groups = client.job_part(running, "groups", state="batched")["results"]
    group = max(groups, key=lambda one: one["max_version"] - one["min_version"])
    sessions = client._send("GET", f"groups/{group['id']}")["sessions"]
    return running, group["id"], sessions[0]["id"]


def _wait(client: Client, job_id: str, is_met: Any) -> None:
    eventually(lambda: is_met(client.job_get(job_id)), timeout_s=180, what="the job's progress")


def signed_in(browser: Browser, platform: PlatformProcess) -> Any:
    context = browser.new_context()
    page = context.new_page()
    page.goto(re.findall(r"dashboard +(\S+)", (platform.home.logs / "up.log").read_text())[-1])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{web_url(platform)}/")
    state = context.storage_state()
    context.close()
    return state


def shoot(browser: Browser, platform: PlatformProcess, state: Any, pages: dict[str, str]) -> None:
    for theme, width in product(THEMES, WIDTHS):
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme=theme, storage_state=state
        )
        page = context.new_page()
        for name, path in pages.items():
            page.goto(web_url(platform) + path)
            settle(page)
            page.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png")
            if name == "machines":
                edit(page)
                page.screenshot(path=FOLDER / f"machine-edit-{theme}-{width}.png")
        context.close()


def settle(page: Page) -> None:
    page.get_by_test_id("line").filter(has_text="live").wait_for()
    page.wait_for_timeout(SETTLE_MS)


def edit(page: Page) -> None:
    """The dry run of taking the trainer's tag away; nothing is applied."""
    page.get_by_role("button", name="Edit alpha").click()
    page.get_by_role("checkbox", name="rollout").set_checked(False)
    page.get_by_test_id("preview").wait_for()
    page.wait_for_timeout(SETTLE_MS)


if __name__ == "__main__":
    sys.exit(main())
