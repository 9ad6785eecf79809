"""One Chromium and one visitor for all pages.

They end with this package, because Playwright's event loop allows no other in its thread.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.acceptance.browser import browser_opened, visitor_signed_in
from tests.acceptance.platform_process import PlatformProcess


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with browser_opened() as opened:
        yield opened


@pytest.fixture(scope="package")
def visitor(browser: Browser, platform: PlatformProcess) -> BrowserContext:
    return visitor_signed_in(browser, platform)
