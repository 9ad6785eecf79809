"""On the storage page, the parts of a job are shown and deleted permanently, and the policy is
edited."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.browser import accessibility_faults, web_url
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

pytestmark = pytest.mark.browser


def job_ended(platform: PlatformProcess, model_root: Path) -> None:
    """Make sure that a job has ended: one from another test, or else a short one."""
    with platform.client() as client:
        if not any(job["ended_at"] for job in client.job_list()):
            client.job_submit(calculator_spec(model_root, num_updates=1))
        eventually(
            lambda: any(job["ended_at"] for job in client.job_list()), timeout_s=180, what="the end of a job"
        )


def test_the_parts_of_a_job_are_shown_and_deleted_permanently(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    job_ended(platform, model_root)
    page.get_by_role("link", name="Storage").click()
    usage = page.get_by_test_id("usage")
    expect(usage).to_contain_text("default")
    assert usage.evaluate("table => table.offsetWidth <= table.parentElement.clientWidth")
    usage.get_by_role("button", name="Total").click()
    assert accessibility_faults(page) == []
    page.get_by_role("navigation", name="Storage").get_by_role("link", name="Jobs").click()
    rows = page.get_by_test_id("stored-jobs").locator("tr", has=page.get_by_role("button"))
    job_id = str(rows.first.get_by_role("link").get_attribute("href")).rpartition("/")[2]
    row = page.get_by_test_id("stored-jobs").locator("tr", has=page.locator(f"a[href='/jobs/{job_id}']"))
    row.get_by_role("button").click()

    dialog = page.get_by_role("dialog")
    dialog.get_by_role("checkbox", name="Logs").check()
    dialog.get_by_role("checkbox", name="The whole job").check()
    expect(dialog.get_by_role("checkbox", name="Logs")).not_to_be_checked()
    expect(dialog.get_by_test_id("freed")).to_contain_text(re.compile(r"^1 part, [\d.]+ [KM]iB"))
    assert accessibility_faults(page) == []
    dialog.get_by_role("textbox", name="Reason").fill("only a try")
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(dialog).to_be_hidden()

    expect(row).to_have_count(0)
    page.get_by_role("link", name="Deletions").click()
    expect(page.get_by_test_id("deletions").locator("tr", has_text="only a try")).to_contain_text(
        "The whole job"
    )
    assert page.request.get(f"{web_url(platform)}/api/v1/jobs/{job_id}").status == 404
    assert complaints == []


def test_a_policy_can_be_edited_and_inherited_again(
    page: Page, platform: PlatformProcess, complaints: list[str]
) -> None:
    page.get_by_role("link", name="Storage").click()
    row = page.get_by_test_id("policy").locator("tr", has_text="logs_days")
    expect(row).to_contain_text("30 days")
    for is_inherited, expected in ((False, "7 days"), (True, "30 days")):
        page.get_by_role("button", name="Edit").click()
        dialog = page.get_by_role("dialog")
        field = dialog.get_by_role("group", name="logs_days")
        field.get_by_role("checkbox", name="Inherit (30 days)").set_checked(is_inherited)
        if not is_inherited:
            field.get_by_role("textbox").fill("seven")
            expect(field).to_contain_text("Enter a whole number from 0 to 36500.")
            field.get_by_role("textbox").fill("7")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_be_hidden()
        expect(row).to_contain_text(expected)
    assert complaints == []
