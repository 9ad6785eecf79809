"""Throttling of sign-in: failures are counted by address, and by address and name together.

Takes an attempt before its secret is checked and either allows the check or raises `SignInLocked`. Invariants: an
attempt is counted first and subtracted if it succeeds, so concurrent attempts never exceed a limit; while a counter is
locked, nothing is written and no password is hashed; a lock leaves one event, however many attempts it refuses.

django-axes counts after the check, so two simultaneous attempts could both be the last one allowed, and has one limit
for all combinations. django-ratelimit needs a cache that all web processes use and that never loses its contents.
Failures for one name from many addresses are not added up, because otherwise a stranger could lock anyone out; another
user behind the same NAT can lock the address. API tokens, session keys and machine tokens have at least 192 bits and
are not throttled: guessing is hopeless, and refusing a guess is cheap.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.db import connection, transaction

from seamlessflow.control_plane.accounts.models import SignInCounter
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.common.subjects import INSTALLATION

IPV6_PREFIX = 64  # the network a provider assigns to one customer
MAX_NAME_LENGTH = 150  # of a user name; no user has a longer one

_COUNT = """
    INSERT INTO accounts_signincounter AS c (key, num, expires_at)
    VALUES (%(key)s, 1, clock_timestamp() + make_interval(secs => %(lock_s)s))
    ON CONFLICT (key) DO UPDATE SET
        num = CASE WHEN c.expires_at <= clock_timestamp() THEN 1 ELSE c.num + 1 END,
        expires_at = clock_timestamp() + make_interval(secs => %(lock_s)s)
    WHERE c.num <= %(limit)s OR c.expires_at <= clock_timestamp()
    RETURNING num
"""
_LEFT = """
    SELECT ceil(extract(epoch FROM expires_at - clock_timestamp())) FROM accounts_signincounter
    WHERE key = %s AND num > %s AND expires_at > clock_timestamp()
"""
_GIVE_BACK = "UPDATE accounts_signincounter SET num = greatest(num - 1, 0) WHERE key = %s"


class SignInLocked(Exception):
    """Too many failures; `retry_after_s`: seconds until the next attempt is checked."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many failed sign-ins; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class _Counter:
    key: str
    limit: int
    origin: str


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    address: str
    username: str = ""


def attempt_begin(*, address: str, username: str = "") -> SignInAttempt:
    """Count an attempt before its secret is looked at. Raises SignInLocked.

    `username` is empty for a sign-in link, which names no user.
    """
    attempt = SignInAttempt(address, username[:MAX_NAME_LENGTH].casefold())
    by_address, *by_name = _counters(attempt)
    _refuse_if_locked(by_address)  # while the address is locked, names add no rows
    for counter in (*by_name, by_address):  # the name's lock spares the address
        _count(counter)
    return attempt


def attempt_succeeded(attempt: SignInAttempt) -> None:
    """Uncount the attempt and forget the failures of this name at this address."""
    by_address, *by_name = _counters(attempt)
    with connection.cursor() as cursor:
        cursor.execute(_GIVE_BACK, [by_address.key])
    SignInCounter.objects.filter(key__in=[counter.key for counter in by_name]).delete()


def attempts_forget() -> None:
    """Delete the counters that ran out."""
    SignInCounter.objects.filter(expires_at__lte=database_now()).delete()


def _counters(attempt: SignInAttempt) -> Iterator[_Counter]:
    """Return the counters of an attempt, the address's first."""
    network = _network(attempt.address)
    yield _Counter(_key(network), settings.SIGN_IN_ADDRESS_FAILURES, f"from {network}")
    if attempt.username:
        origin = f"as {attempt.username!r} from {network}"
        yield _Counter(_key(network, attempt.username), settings.SIGN_IN_FAILURES, origin)


def _count(counter: _Counter) -> None:
    """Raises SignInLocked."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            _COUNT, {"key": counter.key, "limit": counter.limit, "lock_s": settings.SIGN_IN_LOCK_S}
        )
        counted = cursor.fetchone()
        is_new_lock = counted is not None and counted[0] > counter.limit
        if is_new_lock:
            _event(counter)
    if counted is None or is_new_lock:
        _refuse_if_locked(counter)


def _refuse_if_locked(counter: _Counter) -> None:
    """Raises SignInLocked. Nothing is written."""
    with connection.cursor() as cursor:
        cursor.execute(_LEFT, [counter.key, counter.limit])
        left = cursor.fetchone()
    if left is not None:
        raise SignInLocked(int(left[0]))


def _event(counter: _Counter) -> None:
    event_record(
        kind="sign_in.locked",
        subject_type=SubjectType.PROJECT,
        subject_id=INSTALLATION,
        author="system",
        reason=f"{counter.limit} failed sign-ins {counter.origin}; locked for {settings.SIGN_IN_LOCK_S} s",
    )


def _network(address: str) -> str:
    """Return the host; for IPv6 the customer's network, because each customer has billions of addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:  # a unix socket has none
        return address or "unknown"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)


def _key(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()
