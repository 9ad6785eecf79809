"""Sessions of the environment `command` under a supervisor that is root: nothing passes from one to the next.

The range of users is narrowed to one number, so each session gets the number of the one before.
"""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.core.environment.episodes import PolicyEndpoint
from seamlessflow_workers.agents import users
from seamlessflow_workers.agents.environments.command import CommandEnvironment
from seamlessflow_workers.agents.keeper import main, private_folders
from seamlessflow_workers.agents.keeper.leftovers import leftovers_remove

POLICY = PolicyEndpoint(base_url="http://127.0.0.1:9/v1", api_key="key-1")
USER = users.FIRST_USER + users.NUM_USERS - 1
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as other users")

KEYCTL, ADD_KEY = {"x86_64": (250, 248), "aarch64": (219, 217)}[platform.machine()]
NAMES = [f"{folder}/seamlessflow-test-secret" for folder in ("/tmp", "/var/tmp", "/dev/shm")]
# A file that only its owner reads, a segment of shared memory, and a key of the user's own keyring.
LEAVES = f"""
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
names = {NAMES}
found = sum(os.path.exists(name) for name in names)
for name in names:
    os.close(os.open(name, os.O_CREAT | os.O_RDWR, 0o600))
found += libc.shmget(0x5ea1, 0, 0) >= 0
assert libc.shmget(0x5ea1, 4096, 0o1600) >= 0
key = (b"user", b"seamlessflow-test-secret")
keyring = ctypes.c_long(-4)
found += libc.syscall({KEYCTL}, 10, keyring, *key, 0) > 0
libc.syscall({ADD_KEY}, *key, b"x", ctypes.c_size_t(1), keyring)
print(json.dumps({{"reward": 0, "metrics": {{"found": found, "user": os.getuid()}}}}))
"""


def program(source: str) -> CommandEnvironment:
    return CommandEnvironment([sys.executable, "-I", "-c", source])


@pytest.fixture
def one_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(users, "FIRST_USER", USER)
    monkeypatch.setattr(users, "NUM_USERS", 1)
    yield
    leftovers_remove(USER, private_folders.common_folders())


@pytest.mark.usefixtures("one_user")
async def test_a_session_finds_nothing_of_an_earlier_one_with_its_user() -> None:
    first = await program(LEAVES).run({}, POLICY)
    second = await program(LEAVES).run({}, POLICY)
    assert (first.metrics["user"], second.metrics["user"]) == (USER, USER)
    assert second.metrics["found"] == 0
    assert not any(Path(name).exists() for name in NAMES)


def test_without_the_right_to_mount_what_a_user_left_is_removed() -> None:
    """As in a container that has only the rights to become other users."""
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", sys.executable, "-I", "-c"]
    run(*as_user, LEAVES)
    assert all(Path(name).exists() for name in NAMES)
    assert json.loads(run(*as_user, LEAVES))["metrics"]["found"] == len(NAMES) + 2

    main._sweep(USER)

    assert not any(Path(name).exists() for name in NAMES)
    assert json.loads(run(*as_user, LEAVES))["metrics"]["found"] == 0
    main._sweep(USER)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


async def test_a_session_can_gain_no_right() -> None:
    source = """
import json, subprocess
fields = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
namespace = subprocess.run(["unshare", "-Ur", "true"], capture_output=True)
thread = __import__("threading").Thread(target=print)
thread.start()
print(json.dumps({"reward": 0, "metrics": {
    "bounds": int(fields["CapBnd"], 16), "no_new": int(fields["NoNewPrivs"]), "namespace": namespace.returncode,
}}))
"""
    outcome = await program(source).run({}, POLICY)
    assert (outcome.metrics["bounds"], outcome.metrics["no_new"]) == (0, 1)
    assert outcome.metrics["namespace"] != 0


async def test_a_setuid_program_gives_a_session_nothing(tmp_path: Path) -> None:
    """A copy of `id` that belongs to root, where the session can run it."""
    with exposed_folder() as folder:
        setuid = folder / "id"
        setuid.write_bytes(Path("/usr/bin/id").read_bytes())
        setuid.chmod(0o4755)
        source = f"""
import json, subprocess
said = subprocess.run([{str(setuid)!r}, "-u"], capture_output=True, text=True, check=True).stdout
print(json.dumps({{"reward": 0, "metrics": {{"user": int(said)}}}}))
"""
        outcome = await program(source).run({}, POLICY)
    assert outcome.metrics["user"] != 0


@contextlib.contextmanager
def exposed_folder() -> Iterator[Path]:
    folder = Path("/run/seamlessflow-test-exposed")
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    """A folder below /tmp whose parents every user may pass through; pytest's own are closed."""
    base = Path("/tmp/seamlessflow-test-named")
    base.mkdir()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


async def test_what_a_command_names_stays_reachable_and_keeps_its_modes(
    below_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs and the folders of episodes are often below /tmp, which is private."""
    for name, mode in (("program", 0o755), ("episodes", 0o755), ("closed", 0o700)):
        (below_tmp / name).mkdir()
        (below_tmp / name).chmod(mode)
    (below_tmp / "program" / "beside.py").write_text("WORTH = 0.5\n")
    secret, agent = below_tmp / "closed" / "secret", below_tmp / "program" / "agent.py"
    secret.write_text("x")
    agent.write_text(
        "import json, os, beside\n"
        "open('scratch', 'w').write('x')\n"
        f"assert not os.access({str(secret)!r}, os.R_OK)\n"
        f"assert not os.access({str(agent)!r}, os.W_OK)\n"
        "print(json.dumps({'reward': beside.WORTH, 'metrics': {'num': len(os.listdir('/tmp'))}}))\n"
    )
    monkeypatch.setenv("SEAMLESSFLOW_EPISODES_FOLDER", str(below_tmp / "episodes"))
    outcome = await CommandEnvironment([sys.executable, str(agent), str(secret)]).run({}, POLICY)
    assert outcome.reward == 0.5
    assert outcome.metrics == {"num": 1}


async def test_private_folders_are_of_the_size_that_the_operator_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_AGENT_TMP_MB", "3")
    source = """
import json, os
found = os.statvfs("/tmp")
print(json.dumps({"reward": 0, "metrics": {"mb": found.f_blocks * found.f_frsize >> 20}}))
"""
    assert (await program(source).run({}, POLICY)).metrics == {"mb": 3}


def test_users_are_taken_in_turn(tmp_path: Path) -> None:
    def take() -> int:
        taken = users._take(tmp_path)
        assert taken is not None
        os.close(taken[1])
        return taken[0]

    assert [take() for _ in range(3)] == [users.FIRST_USER + number for number in range(3)]
    (tmp_path / "last").write_text(str(users.FIRST_USER + users.NUM_USERS - 1))
    assert take() == users.FIRST_USER
