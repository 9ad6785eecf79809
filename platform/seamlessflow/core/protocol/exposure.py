"""Who may reach a process: the rule that every plane applies to the address it binds.

Takes a host name or address and the installation's mode; returns None, or one sentence that says why it is refused.
Invariant: a process of a local installation can be reached only from its own machine. Two modes open it to others, and
demand a strong secret: `private` serves plain HTTP to a network that only trusted machines use; `production` demands
TLS for browsers, and is checked as a whole at start.
"""

import ipaddress
from enum import StrEnum

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
MIN_SECRET_LENGTH = 50
MIN_SECRET_DISTINCT = 5
SECRET_ACCEPTED = (
    f"at least {MIN_SECRET_LENGTH} characters, {MIN_SECRET_DISTINCT} of them different, "
    "as from `openssl rand -base64 48`"
)


class Mode(StrEnum):
    LOCAL = "local"
    PRIVATE = "private"
    PRODUCTION = "production"


MODE_VARIABLE = "SEAMLESSFLOW_MODE"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name that is not known to be loopback counts as open."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def binding_refusal(host: str, *, mode: Mode) -> str | None:
    """Return why a process of this mode must not listen on `host`; None if it may."""
    if mode is not Mode.LOCAL or is_loopback(host):
        return None
    return (
        f"--host {host!r} is reachable from other machines; accepted in mode {mode}: 127.0.0.1, ::1, localhost. To "
        f"open it, set {MODE_VARIABLE}={Mode.PRODUCTION} and the settings that this mode requires"
    )


def secret_weakness(secret: str) -> str | None:
    """Return why a secret is too weak for production; None if it is good enough. Never quotes the secret itself."""
    if len(secret) < MIN_SECRET_LENGTH:
        return f"{len(secret)} characters long"
    if len(set(secret)) < MIN_SECRET_DISTINCT:
        return f"made of {len(set(secret))} different characters"
    return None
