"""Guessing passwords: after a few failures nothing is checked any more, whatever is sent, and one
event says so."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest
from django.contrib.auth.hashers import check_password
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from seamlessflow.control_plane.accounts.models import User
from seamlessflow.control_plane.accounts.services.people import sign_in_token_create
from seamlessflow.control_plane.common.models import Event

PASSWORD = "a-long-enough-password"
LIMIT, ADDRESS_LIMIT, LOCK_S = 5, 12, 300


@pytest.fixture(autouse=True)
def _limits(settings: Settings) -> None:
    settings.SIGN_IN_FAILURES, settings.SIGN_IN_ADDRESS_FAILURES, settings.SIGN_IN_LOCK_S = (
        LIMIT,
        ADDRESS_LIMIT,
        LOCK_S,
    )


@pytest.fixture
def quick_hashes(settings: Settings) -> None:
    """A hash is slow on purpose, which proves nothing about what is counted."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def admin(db: None, quick_hashes: None) -> User:
    return User.objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def hashed() -> Iterator[list[str]]:
    """The passwords that were hashed for comparison."""
    passwords: list[str] = []

    def noted(password: str, *args: object, **options: object) -> bool:
        passwords.append(password)
        return check_password(password, *args, **options)  # type: ignore[arg-type]

    with patch("django.contrib.auth.base_user.check_password", noted):
        yield passwords


def sign_in(password: str, *, name: str = "ada", address: str = "10.0.0.1") -> HttpResponse:
    return Client(REMOTE_ADDR=address).post(  # type: ignore[return-value]
        "/admin/login/?next=/admin/", {"username": name, "password": password}
    )


def later(seconds: float) -> None:
    """Pretend that this much time has passed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE accounts_signincounter SET expires_at = expires_at - make_interval(secs => %s)", [seconds]
        )


def locks() -> int:
    return Event.objects.filter(kind="sign_in.locked").count()


@pytest.mark.usefixtures("admin")
def test_guesses_are_cut_off_before_a_password_is_hashed(hashed: list[str]) -> None:
    guesses = [sign_in(f"guess-{number}").status_code for number in range(LIMIT + 20)]
    answer = sign_in(PASSWORD)

    assert (guesses[:LIMIT], set(guesses[LIMIT:])) == ([200] * LIMIT, {429})
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= LOCK_S
    assert b"Too many failed sign-ins" in answer.content
    assert len(hashed) == LIMIT
    assert locks() == 1


@pytest.mark.usefixtures("admin")
def test_a_lock_ends_and_success_forgets_failures() -> None:
    for _ in range(LIMIT + 1):
        sign_in("wrong")
    later(LOCK_S)
    assert sign_in("wrong").status_code == 200
    assert sign_in(PASSWORD).status_code == 302
    assert [sign_in("wrong").status_code for _ in range(LIMIT)] == [200] * LIMIT
    assert sign_in(PASSWORD).status_code == 429


@pytest.mark.usefixtures("admin")
def test_a_lock_applies_to_one_name_at_one_address() -> None:
    for _ in range(LIMIT + 1):
        sign_in("wrong")
    assert sign_in(PASSWORD, address="10.0.0.2").status_code == 302
    assert sign_in("wrong", name="other").status_code == 200
    assert sign_in("wrong", name="ADA").status_code == 429


@pytest.mark.usefixtures("admin")
def test_many_names_from_one_address_are_cut_off_and_leave_few_rows() -> None:
    answers = [sign_in("wrong", name=f"name-{number}").status_code for number in range(ADDRESS_LIMIT + 50)]

    assert answers == [200] * ADDRESS_LIMIT + [429] * 50
    assert sign_in(PASSWORD).status_code == 429
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM accounts_signincounter")
        assert cursor.fetchone() == (ADDRESS_LIMIT + 2,)
    assert locks() == 1
    # A provider's customer has 2 ** 64 addresses in one network.
    assert {sign_in("wrong", name="x", address=f"2001:db8::{n:x}").status_code for n in range(1, 30)} == {
        200,
        429,
    }


def test_guessed_links_count_and_a_real_one_still_works_elsewhere(admin: User) -> None:
    def use(secret: str, address: str) -> int:
        return int(Client(REMOTE_ADDR=address).post(f"/signin/{secret}").status_code)

    guesses = [use(f"guess-{number}", "10.0.0.1") for number in range(ADDRESS_LIMIT + 1)]
    _, secret = sign_in_token_create(user=admin, author="test")

    assert guesses == [410] * ADDRESS_LIMIT + [429]
    assert (use(secret, "10.0.0.1"), use(secret, "10.0.0.2")) == (429, 302)


@pytest.mark.django_db(transaction=True)
def test_simultaneous_guesses_are_not_checked_more_often(hashed: list[str]) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)

    def guess(number: int) -> int:
        try:
            return int(sign_in(f"guess-{number}").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(guess, range(2 * LIMIT)))

    assert sorted(answers) == [200] * LIMIT + [429] * LIMIT
    assert len(hashed) == LIMIT
