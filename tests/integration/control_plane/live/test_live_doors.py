"""Sockets end when the credentials that opened them end, and show machines only to projects with
access to their pool."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Membership, Token, User
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from tests.fixtures.control_plane import Cast, worker_make
from tests.integration.control_plane.live.test_live_socket import Browser, empty_broker, feeder_make, tick

__all__ = ["empty_broker"]
pytestmark = pytest.mark.django_db(transaction=True)
CLOSED_WITHIN_S = 5.0


async def close_code(browser: Browser) -> int | None:
    """Return the code with which the server closes the socket, or None if it stays open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSED_WITHIN_S):
            while True:
                # It has no timeout of its own, which would end the socket.
                message = await browser.socket.output_queue.get()
                if message["type"] == "websocket.close":
                    return int(message["code"])
    return None


def revoke(cast: Cast) -> None:
    Token.objects.filter(user=cast.member.user).update(revoked_at=timezone.now())


def expire(cast: Cast) -> None:
    Token.objects.filter(user=cast.member.user).update(expires_at=timezone.now())


def leave(cast: Cast) -> None:
    Membership.objects.filter(user=cast.member.user).delete()


def close_account(cast: Cast) -> None:
    User.objects.filter(id=cast.member.user.id).update(is_active=False)


@pytest.mark.parametrize(
    "change, code", [(revoke, 4401), (expire, 4401), (close_account, 4401), (leave, 4403)]
)
async def test_a_socket_ends_with_the_credentials_that_opened_it(
    cast: Cast, change: Callable[[Cast], None], code: int
) -> None:
    async with Browser() as browser, Browser() as other:
        for one, person in ((browser, cast.member), (other, cast.owner)):
            await one.say(token=person.secret, subscribe=["jobs"])
            assert (await one.hear())["kind"] == "snapshot"

        await database_sync_to_async(change)(cast)

        assert await close_code(browser) == code
        await other.say(subscribe=["jobs"])
        assert (await other.hear())["kind"] == "snapshot"


def signed_in(user: User) -> SessionStore:
    session = SessionStore()
    session[SESSION_KEY] = str(user.id)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return session


def sign_out(session: SessionStore, user: User) -> None:
    session.flush()


def change_password(session: SessionStore, user: User) -> None:
    user.set_password("another long password")
    user.save()


@pytest.mark.parametrize("change", [sign_out, change_password])
async def test_a_browsers_socket_ends_with_its_session(cast: Cast, change: Callable[..., None]) -> None:
    user = cast.member.user
    session = await database_sync_to_async(signed_in)(user)
    browser = Browser(user=user)
    browser.socket.scope["session"] = session
    async with browser:
        await browser.say(subscribe=["jobs"])
        assert (await browser.hear())["kind"] == "snapshot"

        await database_sync_to_async(change)(session, user)

        assert await close_code(browser) == 4401


def machines_make(cast: Cast) -> None:
    worker_make("open", "rollout")
    for name, person in (("ours", cast.owner), ("theirs", cast.outsider)):
        machine = worker_make(name, "rollout").machine
        Machine.objects.filter(id=machine.id).update(pool=name)
        PoolGrant.objects.create(pool=name, project=person.project)


async def machines_heard(browser: Browser, num_frames: int) -> list[str]:
    frames: list[dict[str, Any]] = [await browser.hear() for _ in range(num_frames)]
    return sorted(row["name"] for frame in frames for row in frame["data"]["machines"])


async def test_machines_of_a_granted_pool_are_shown_to_its_projects_only(cast: Cast) -> None:
    await database_sync_to_async(machines_make)(cast)
    feeder = await feeder_make()
    async with Browser() as browser:
        await browser.say(token=cast.member.secret, subscribe=["machines"])
        first = await browser.hear()
        shown = {row["name"] for row in first["data"]["machines"]}
        assert "theirs" not in shown
        shown |= set(await machines_heard(browser, 1))
        assert shown == {"open", "ours"}

        await Machine.objects.filter(name__in=["theirs", "ours"]).aupdate(is_cordoned=True)
        await tick(feeder)
        assert await machines_heard(browser, 1) == ["ours"]

        await PoolGrant.objects.filter(pool="ours").aupdate(project=cast.outsider.project)
        assert await close_code(browser) == 4403
    feeder.close()


async def test_a_machine_that_moves_to_a_hidden_pool_is_said_to_have_left_and_no_more(cast: Cast) -> None:
    await database_sync_to_async(machines_make)(cast)
    feeder = await feeder_make()
    async with Browser() as browser:
        await browser.say(token=cast.member.secret, subscribe=["machines"])
        assert "open" in await machines_heard(browser, 2)

        await Machine.objects.filter(name="open").aupdate(pool="theirs")
        await tick(feeder)
        heard = await browser.hear()
        assert (heard["topic"], heard["data"]) == ("machines", {"left": ["open"]})
    feeder.close()


async def test_a_caller_without_the_open_pool_still_receives_the_beat(cast: Cast) -> None:
    await PoolGrant.objects.acreate(pool="default", project=cast.owner.project)
    async with Browser() as browser:
        await browser.say(token=cast.outsider.secret, subscribe=["machines"])
        frame = await browser.hear()

    assert frame["topic"] == "machines:"
    assert (frame["data"]["machines"], frame["data"]["intervals"], frame["data"]["edits"]) == ([], [], [])
