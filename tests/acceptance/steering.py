"""The three ways to edit machines: REST with an ETag, the command line, the admin site."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from click.testing import CliRunner, Result

from seamlessflow.cli.main import cli
from tests.acceptance.platform_process import PlatformProcess

CHANGELIST = "/admin/cluster/machine/"


def web_url(platform: PlatformProcess) -> str:
    run = platform.home.read_run()
    assert run is not None
    return run.web_url


def rest_tags_set(platform: PlatformProcess, name: str, tags: list[str], *, reason: str) -> None:
    """Send a PATCH with the generation just read. Check that it is refused with 428 without a
    generation and with 412 for an old one."""
    with httpx.Client(
        base_url=f"{web_url(platform)}/api/v1/", headers={"Authorization": f"Bearer {platform.token}"}
    ) as http:
        machine = next(m for m in http.get("machines").json()["results"] if m["name"] == name)
        path, body = f"machines/{machine['id']}", {"tags": tags, "reason": reason}
        etag = http.get(path).headers["ETag"]
        assert http.patch(path, json=body).status_code == 428
        assert http.patch(path, json=body, headers={"If-Match": '"0"'}).status_code == 412
        done = http.patch(path, json=body, headers={"If-Match": etag})
        assert (done.status_code, sorted(done.json()["tags"])) == (200, sorted(tags))
        stale = http.patch(path, json=body | {"tags": []}, headers={"If-Match": etag})
        assert stale.status_code == 412


def command(platform: PlatformProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the `seamlessflow` command against the installation."""
    return subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", *arguments],
        env=platform.environ | {"SEAMLESSFLOW_HOME": str(platform.home.root)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def invoke(platform: PlatformProcess, *arguments: str) -> Result:
    """Run the same command in this process, so that an active job need not wait for an interpreter
    to start."""
    reach = {"SEAMLESSFLOW_WEB_URL": web_url(platform), "SEAMLESSFLOW_TOKEN": platform.token}
    return CliRunner().invoke(cli, arguments, standalone_mode=False, env=reach)


def said(platform: PlatformProcess, *arguments: str) -> str:
    result = invoke(platform, *arguments)
    if result.exception is not None:
        raise result.exception
    return result.output


@contextmanager
def admin_site(platform: PlatformProcess) -> Iterator[httpx.Client]:
    """Return a browser session of the owner, signed in by a new one-time link."""
    link = platform.sign_in_link()
    with httpx.Client(base_url=web_url(platform), timeout=30.0) as browser:
        browser.get(link)
        answer = _post(browser, link, {})
        assert answer.status_code == 302, answer.text
        yield browser


def admin_bulk_edit(browser: httpx.Client, machine_ids: list[str], **fields: str) -> list[str]:
    """Run the bulk action, apply the edit as shown, and return the sentences of its dry run."""
    chosen: dict[str, Any] = {"action": "retag", "_selected_action": machine_ids, "work": "leave", **fields}
    shown = _post(browser, CHANGELIST, chosen | {"step": "preview"})
    seen = dict(re.findall(r'name="(seen_[^"]+)" value="([^"]*)"', shown.text))
    done = _post(browser, CHANGELIST, chosen | seen | {"step": "apply"})
    assert done.status_code == 302, done.text
    dry_run = shown.text.partition('id="dry-run"')[2].partition("</fieldset>")[0]
    return [re.sub("<[^>]+>", "", item).strip() for item in re.findall(r"<li>(.*?)</li>", dry_run, re.S)]


def _post(browser: httpx.Client, url: str, fields: dict[str, Any]) -> httpx.Response:
    token = browser.cookies.get("seamlessflow_csrf") or ""
    headers = {"Referer": str(browser.base_url)}
    return browser.post(url, data={**fields, "csrfmiddlewaretoken": token}, headers=headers)
