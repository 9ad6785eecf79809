"""The page of settings says what the processes read."""

from deploy.local.settings_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m deploy.local.settings_page"
