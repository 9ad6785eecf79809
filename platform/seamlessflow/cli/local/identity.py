"""Chooses the user for a server that refuses to run as root.

Reads the effective user of this process and what the kernel allows. Returns an `Identity` for `child_exec`, and says
whether that identity can reach a path. Invariant: it creates no system user and never changes the mode of an existing
folder.
"""

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from seamlessflow.cli.local.failure import InstallationFailed

CHILD_EXEC = Path(__file__).with_name("child_exec.py")
PROBE_TIMEOUT_S = 10.0


class IdentityKind(StrEnum):
    SAME = "same"
    USER_NAMESPACE = "userns"
    UNPRIVILEGED = "setuid"


class NoUnprivilegedIdentity(InstallationFailed):
    """This process runs as root and the machine has no other user."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that a child runs as; `uid` and `gid` are as seen inside the child."""

    kind: IdentityKind
    uid: int
    gid: int

    def as_argument(self) -> str:
        match self.kind:
            case IdentityKind.SAME:
                return "same"
            case IdentityKind.USER_NAMESPACE:
                return f"userns:{self.uid}"
            case IdentityKind.UNPRIVILEGED:
                return f"setuid:{self.uid}:{self.gid}"

    @property
    def owner(self) -> tuple[int, int]:
        """Return the user and group of the files that it creates, as seen from outside."""
        is_other = self.kind is IdentityKind.UNPRIVILEGED
        return (self.uid, self.gid) if is_other else (os.geteuid(), os.getegid())

    def can_walk_to(self, path: Path) -> bool:
        """Whether the modes of the folders above `path` let this identity through."""
        if self.kind is not IdentityKind.UNPRIVILEGED:
            return True
        return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def same_identity() -> Identity:
    return Identity(IdentityKind.SAME, os.geteuid(), os.getegid())


def choose_identity() -> Identity:
    """Return the current user if it is an ordinary user, else a user namespace, else an unprivileged user."""
    if os.geteuid() != 0:
        return same_identity()
    in_namespace = Identity(IdentityKind.USER_NAMESPACE, *_lowest_ordinary_user())
    return in_namespace if _works(in_namespace) else _nobody()


def wrapped(command: tuple[str, ...], *, identity: Identity, death_signal: int) -> tuple[str, ...]:
    """Return the command that runs `command` as `identity` and ends with the calling thread's process."""
    prefix = (sys.executable, "-I", "-S", str(CHILD_EXEC))
    return (*prefix, str(os.getpid()), str(int(death_signal)), identity.as_argument(), *command)


def _lowest_ordinary_user() -> tuple[int, int]:
    # initdb looks up its user by name, so the machine must list that user.
    users = [(entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall() if entry.pw_uid != 0]
    if not users:
        raise NoUnprivilegedIdentity("PostgreSQL refuses to run as root and /etc/passwd lists no other user.")
    return min(users)


def _nobody() -> Identity:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(IdentityKind.UNPRIVILEGED, *_lowest_ordinary_user())
    return Identity(IdentityKind.UNPRIVILEGED, entry.pw_uid, entry.pw_gid)


def _works(identity: Identity) -> bool:
    probe = wrapped(("true",), identity=identity, death_signal=9)
    done = subprocess.run(probe, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    return done.returncode == 0
