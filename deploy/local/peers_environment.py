"""Creates the environments of other people's programs that we compare with, on demand, never in `make setup`.

Enters: the environment of `bootstrap`, a peer and its file in `deploy/constraints`. Leaves: an interpreter that has the
peer. TRL has every package of the app's environment behind it (the same torch and transformers, so that a comparison
compares trainers and not versions); LiteLLM has only its own packages. Invariant as in `bootstrap`: a run with nothing
to do only compares a stamp.
"""

import fcntl
import hashlib
import shutil
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.local import bootstrap
from deploy.local.bootstrap import HOME, ROOT, SetupFailed, say, step

OVERLAY = "behind.pth"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program to compare with. `has_app_behind`: it also sees the packages of the app's environment."""

    name: str
    title: str
    import_check: str
    has_app_behind: bool

    @property
    def venv(self) -> Path:
        return HOME / "venvs" / f"peers-{self.name}"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def lock(self) -> Path:
        return ROOT / "deploy" / "constraints" / f"peers-{self.name}.txt"


TRL = Peer("trl", "TRL", "from trl import GRPOTrainer", has_app_behind=True)
LITELLM = Peer("litellm", "LiteLLM", "import litellm.proxy.proxy_server", has_app_behind=False)
PEERS = {peer.name: peer for peer in (TRL, LITELLM)}


def main() -> int:
    """Take the name of a peer; without one, TRL."""
    name = sys.argv[1] if len(sys.argv) > 1 else TRL.name
    if (peer := PEERS.get(name)) is None:
        print(f"setup: there is no peer {name!r}; it is one of: {', '.join(PEERS)}", file=sys.stderr)
        return 2
    try:
        ensure(peer)
    except SetupFailed as failure:
        print(f"setup: no {peer.title}: {failure}", file=sys.stderr)
        return 1
    return 0


def ensure(peer: Peer = TRL) -> Path:
    """Return the peer's interpreter; create its environment if needed. Raises SetupFailed."""
    HOME.mkdir(exist_ok=True)
    with (HOME / "setup-peers.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_up_to_date(peer):
            set_up(peer)
    return peer.python


def is_up_to_date(peer: Peer) -> bool:
    stamp = peer.venv / "setup-stamp"
    return stamp.exists() and stamp.read_text() == wanted_stamp(peer) and peer.python.exists()


def wanted_stamp(peer: Peer) -> str:
    return hashlib.sha256(f"{ROOT} {bootstrap.wanted_stamp()}".encode() + peer.lock.read_bytes()).hexdigest()


def set_up(peer: Peer) -> None:
    started_at = time.monotonic()
    bootstrap.LOG.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(peer.venv, ignore_errors=True)
    step(f"virtual environment of {peer.title}", [sys.executable, "-m", "venv", str(peer.venv)])
    if peer.has_app_behind:
        own = sysconfig.get_path("purelib", vars={"base": str(peer.venv), "platbase": str(peer.venv)})
        (Path(own) / OVERLAY).write_text(sysconfig.get_path("purelib") + "\n")
    step(peer.title, [str(peer.python), "-m", "pip", "install", "--no-deps", "-r", str(peer.lock)])
    step(f"{peer.title} check", [str(peer.python), "-c", peer.import_check])
    (peer.venv / "setup-stamp").write_text(wanted_stamp(peer))
    say(
        f"environment of {peer.title} ready in {time.monotonic() - started_at:.0f} s: {peer.venv.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    sys.exit(main())
