"""Takes the pictures of `docs/screenshots` (`make screenshots`, about five minutes).

It needs a Chromium on the PATH. It starts a platform that trains a policy meanwhile, and takes each
page in light and dark, 1280 and 1920 pixels wide. Machines are retagged during the job, so that
lanes have something to show. The growing forests belong to a second job, whose agents run here and
give long answers.
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from seamlessflow.client import Client
from tests.acceptance.browser import ARGUMENTS, CHROMIUM, web_url
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.models import endless_model, example_model, example_tasks
from tests.acceptance.outside_agents import Agents, external_spec, versions_painted
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
Theme = Literal["light", "dark"]
Look = tuple[Theme, int]
LOOKS: tuple[Look, ...] = (("light", 1280), ("light", 1920), ("dark", 1280), ("dark", 1920))
HEIGHT = 900
LONG_PAGES = frozenset({"job"})  # whole, however far they go down
STEADY_AFTER_MS = 1500
NUM_UPDATES_SEEN = 25
# A growing group: its answers have different lengths and do not begin together.
ANSWERS = (900, 700, 1000, 500, 1100, 800)
APART_S = 0.8
NUM_VERSIONS_SEEN = 3
SLIGHT = 1e-7
GROWTH_TIMEOUT_S = 90.0


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
    endless_model(models / "endless", like=models / "calculator")
    platform = new_platform(folder / "home", model_root=models)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def take(browser: Browser, platform: PlatformProcess, models: Path) -> None:
    with visit(browser, platform) as visitor, platform.client() as client:
        for look in LOOKS:
            visitor.shoot(look, {"jobs-empty": "/"})
        finished, running, group, session = history(client, models)
        pages = {
            "jobs": "/",
            "job": f"/jobs/{running}",
            "job-groups": f"/jobs/{running}/groups",
            "job-logs": f"/jobs/{running}/logs",
            "job-events": f"/jobs/{running}/events",
            "job-compare": f"/jobs/{running}/compare?with={finished}",
            "queue": "/queue",
            "machines": "/machines",
            "shares": "/shares",
            "submit": f"/jobs/new?from={running}",
            "group": f"/groups/{group}",
            "session": f"/sessions/{session}",
            "storage": "/storage",
            "tokens": "/tokens",
            "members": "/members",
        }
        for look in LOOKS:
            visitor.shoot(look, pages)
        client.job_edit(running, "cancel")
        forests_growing(visitor, platform, client, models)


def history(client: Client, models: Path) -> tuple[str, str, str, str]:
    """Return the first and last job, a group and a session, from a finished job, a waiting one, and
    one during which a machine is retagged.

    Model and tasks are uploaded, as somebody at another computer would do.
    """
    spec = calculator_spec(models, num_updates=30, groups_per_batch=8)
    spec["model"]["source"] = client.upload(models / "calculator")
    spec["environment"]["tasks"] = client.upload(models / "tasks.jsonl")
    finished = client.job_submit(spec | {"name": "calculator-30"})["id"]
    _wait(client, finished, lambda job: job["state"] == "completed")
    long = spec | {"name": "calculator-3000", "train": spec["train"] | {"num_updates": 3000}}
    running = client.job_submit(long)["id"]
    client.job_submit(spec | {"name": "calculator-h200", "placement": {"train": ["gpu=h200"]}})
    _wait(client, running, lambda job: job["latest_version"] >= NUM_UPDATES_SEEN)
    beta = next(machine for machine in client.machine_list() if machine["name"] == "beta")
    edit = {"tags": ["rollout", "train"]}
    client.machine_edit(beta["id"], changes=edit, reason="may train as well", generation=beta["generation"])
    time.sleep(10)
    group = eventually(
        lambda: _of_several_versions(client, running), timeout_s=120, what="a group of two versions"
    )
    sessions = client._send("GET", f"groups/{group['id']}")["sessions"]
    return finished, running, group["id"], sessions[0]["id"]


def _of_several_versions(client: Client, job_id: str) -> Any:
    groups = client.job_part(job_id, "groups", state="batched")["results"]
    return next((group for group in groups if group["max_version"] > group["min_version"]), None)


def forests_growing(visitor: "Visitor", platform: PlatformProcess, client: Client, models: Path) -> None:
    """Take pictures of a forest while it decodes under several versions, in each look."""
    spec = external_spec(models) | {"name": "long answers"}
    spec["model"]["source"] = client.upload(models / "endless")
    spec["rollout"] |= {"group_size": len(ANSWERS)}
    spec["train"] |= {
        "learning_rate": SLIGHT
    }  # versions that differ in number alone: it must not learn to be brief
    job_id = client.job_submit(spec)["id"]
    _wait(client, job_id, lambda job: job["state"] == "running")
    with Agents(platform, job_id, num_tokens=ANSWERS, apart_s=APART_S) as agents:
        for look in LOOKS:
            with visitor.page(look) as page:
                grown_until_seen(page, visitor, client, agents)
                page.screenshot(path=picture("forest-live", look))
    client.job_edit(job_id, "cancel")


def grown_until_seen(page: Page, visitor: "Visitor", client: Client, agents: Agents) -> None:
    """Open one growing group after another until one shows several versions while it grows."""
    deadline_at = time.monotonic() + GROWTH_TIMEOUT_S
    seen: str | None = None
    while time.monotonic() < deadline_at:
        session = agents.talking
        if session is None:
            page.wait_for_timeout(50)
            continue
        if session != seen:
            page.goto(f"{visitor.web_url}/groups/{client.session_get(session)['group_id']}")
            finalize(page)
            seen = session
        is_growing = "growing" in page.get_by_test_id("forest-count").inner_text()
        if is_growing and len(versions_painted(page)) >= NUM_VERSIONS_SEEN:
            return
        page.wait_for_timeout(200)
    raise RuntimeError(f"no forest was seen to grow under {NUM_VERSIONS_SEEN} versions")


def _wait(client: Client, job_id: str, is_met: Any) -> None:
    eventually(lambda: is_met(client.job_get(job_id)), timeout_s=180, what="the job's progress")


@dataclass(frozen=True)
class Visitor:
    """A signed-in person with a browser for each look."""

    browser: Browser
    web_url: str
    state: Any

    @contextmanager
    def page(self, look: Look) -> Iterator[Page]:
        theme, width = look
        context = self.browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme=theme, storage_state=self.state
        )
        yield context.new_page()
        context.close()

    def shoot(self, look: Look, pages: dict[str, str]) -> None:
        with self.page(look) as page:
            for name, path in pages.items():
                page.goto(self.web_url + path)
                page.wait_for_load_state("networkidle")  # tokens of a forest come page by page
                finalize(page)
                if name in LONG_PAGES:
                    stretch(page, look)
                page.screenshot(path=picture(name, look))
                page.set_viewport_size({"width": look[1], "height": HEIGHT})
                if name == "machines":
                    edit(page)
                    page.screenshot(path=picture("machine-edit", look))
                if name == "group":
                    choose_answer(page)
                    page.screenshot(path=picture("group-answer", look))


@contextmanager
def visit(browser: Browser, platform: PlatformProcess) -> Iterator[Visitor]:
    """Sign in with the link that the installation printed."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(re.findall(r"dashboard +(\S+)", (platform.home.logs / "up.log").read_text())[-1])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{web_url(platform)}/")
    state = context.storage_state()
    context.close()
    yield Visitor(browser, web_url(platform), state)


def picture(name: str, look: Look) -> Path:
    theme, width = look
    return FOLDER / f"{name}-{theme}-{width}.png"


def finalize(page: Page) -> None:
    page.get_by_test_id("line").filter(has_text="live").wait_for()
    page.wait_for_timeout(STEADY_AFTER_MS)


def stretch(page: Page, look: Look) -> None:
    """Make the window as high as the page: a full-page picture would cut off the navigation at the
    end of the window."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": look[1], "height": height})
    page.wait_for_timeout(STEADY_AFTER_MS)


def choose_answer(page: Page) -> None:
    """Open the panel of the first answer, which calls a tool, beside the forest."""
    page.get_by_role("button", name="Outline").click()
    page.get_by_role("treeitem").filter(has_text="nswer").first.click()
    page.get_by_role("button", name="Outline").click()
    page.get_by_role("button", name="Show all").click()
    page.mouse.move(1, 1)
    page.wait_for_timeout(STEADY_AFTER_MS)


def edit(page: Page) -> None:
    """Open the dry run of removing the trainer's tag; nothing is applied."""
    page.get_by_role("button", name="Edit alpha").click()
    page.get_by_role("checkbox", name="rollout").set_checked(False)
    page.get_by_test_id("preview").wait_for()
    page.wait_for_timeout(STEADY_AFTER_MS)


if __name__ == "__main__":
    sys.exit(main())
