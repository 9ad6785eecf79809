"""The pages of tokens and members: from creating a token to revoking it, from an invitation to a
removal."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.browser import accessibility_faults, web_url
from tests.acceptance.platform_process import PlatformProcess

pytestmark = pytest.mark.browser


def status_with(platform: PlatformProcess, secret: str) -> int:
    answer = httpx.get(f"{web_url(platform)}/api/v1/jobs", headers={"Authorization": f"Bearer {secret}"})
    return answer.status_code


def test_a_token_is_created_with_scopes_and_an_expiry_and_then_revoked(
    page: Page, platform: PlatformProcess, complaints: list[str]
) -> None:
    page.get_by_role("link", name="API tokens").click()
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("ci-nightly")
    dialog.get_by_role("checkbox", name="sessions").uncheck()
    dialog.get_by_role("textbox", name="Expires after (days)").fill("400")
    expect(dialog.get_by_text("Enter a whole number from 1 to 365.")).to_be_visible()
    expect(dialog.get_by_role("button", name="Create token")).to_be_disabled()
    dialog.get_by_role("textbox", name="Expires after (days)").fill("30")
    assert accessibility_faults(page) == []
    dialog.get_by_role("button", name="Create token").click()
    secret = dialog.get_by_test_id("secret").inner_text()
    dialog.get_by_role("button", name="Done").click()

    row = page.get_by_test_id("tokens").locator("tr", has_text="ci-nightly")
    expect(row).to_contain_text(re.compile("read.*submit"))
    expect(row).not_to_contain_text("sessions")
    expect(row).to_contain_text("active")
    assert status_with(platform, secret) == 200
    row.get_by_role("button", name="Revoke ci-nightly").click()
    page.get_by_role("button", name="Revoke the token").click()
    expect(row).to_contain_text("revoked")
    assert status_with(platform, secret) == 401
    assert complaints == []


def test_somebody_is_invited_promoted_and_removed(
    page: Page, browser: Browser, platform: PlatformProcess, complaints: list[str]
) -> None:
    page.get_by_role("link", name="Members").click()
    page.get_by_role("button", name="Add member").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="User name").fill("nina")
    dialog.get_by_role("checkbox", name="Create the account").check()
    dialog.get_by_role("button", name="Add", exact=True).click()
    link = dialog.get_by_test_id("sign-in-link").inner_text()
    dialog.get_by_role("button", name="Done").click()

    theirs = browser.new_context()
    guest = theirs.new_page()
    guest.goto(link)
    guest.get_by_role("button", name="Sign in").click()
    expect(guest.get_by_test_id("line")).to_have_text("live", timeout=15_000)
    page.get_by_role("combobox", name="Role of nina").select_option("viewer")
    expect(page.get_by_role("combobox", name="Role of nina")).to_have_value("viewer")
    assert accessibility_faults(page) == []

    page.get_by_role("button", name="Remove nina").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_test_id("members").locator("tr", has_text="nina")).to_have_count(0)
    guest.get_by_role("link", name="Members").click()
    expect(guest.get_by_text("You are not in any project yet.")).to_be_visible()
    theirs.close()
    assert complaints == []
