"""Programs as agents: what they are given, what counts as an outcome, and that nothing of them stays behind."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from seamlessflow.core.environment.episodes import BrokenEpisode, PolicyEndpoint
from seamlessflow_workers.agents.environments.command import CommandEnvironment
from seamlessflow_workers.agents.episode import run_episode
from tests.fixtures.runner_gateway import until

POLICY = PolicyEndpoint(base_url="http://127.0.0.1:9/v1", api_key="key-1")
NICENESS = 10


async def never_held(session_id: UUID) -> float:
    return 0.0


@pytest.fixture
def note_folder() -> Iterator[Path]:
    """Where a program may leave a note, whichever user it runs as: root's programs have a /tmp of their own."""
    parent = "/run" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="seamlessflow-notes-", dir=parent) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def program(source: str) -> CommandEnvironment:
    return CommandEnvironment([sys.executable, "-I", "-c", source])


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_program_gets_endpoint_key_and_task_in_an_empty_folder_of_its_own() -> None:
    source = """
import json, os
task = json.loads(os.environ["SEAMLESSFLOW_TASK"])
print("some chatter")
assert os.environ["OPENAI_BASE_URL"].endswith("/v1") and os.listdir() == []
open("scratch", "w").write("x")
print(json.dumps({"reward": task["worth"], "metrics": {"num_keys": len(os.environ["OPENAI_API_KEY"])}}))
print("{}")
print("and a last word")
"""
    outcome = await program(source).run({"worth": 0.5}, POLICY)
    assert outcome.reward == 0.5
    assert outcome.metrics == {"num_keys": 5}


async def test_a_program_gets_no_variable_of_the_operator_that_is_not_on_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "ARTIFACT_ROOT", "DATABASE_URL", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SEAMLESSFLOW_AGENT_VARIABLES", "HTTPS_PROXY, DATABASE_URL")
    source = """
import json, os
assert "PATH" in os.environ and os.environ["LC_ALL"] == "C.UTF-8"
found = [name for name, value in os.environ.items() if value == "secret"]
print(json.dumps({"reward": float(found == ["HTTPS_PROXY"])}))
"""
    assert (await program(source).run({}, POLICY)).reward == 1.0


async def test_a_program_and_its_children_yield_the_cores_to_engines_and_trainers() -> None:
    source = """
import json, os, pathlib, subprocess
group = pathlib.Path("/proc/self/autogroup")
session = int(group.read_text().split()[-1]) if group.exists() else 0
child = int(subprocess.run(["nice"], capture_output=True).stdout)
print(json.dumps({"reward": 1.0, "metrics": {"own": os.nice(0), "child": child, "session": session}}))
"""
    metrics = (await program(source).run({}, POLICY)).metrics
    expected = min(19, os.nice(0) + NICENESS)
    has_groups = Path("/proc/self/autogroup").exists()
    assert metrics == {"own": expected, "child": expected, "session": NICENESS if has_groups else 0}


async def test_the_last_reward_line_counts() -> None:
    outcome = await program("print('{\"reward\": 0.1}'); print('{\"reward\": 1}')").run({}, POLICY)
    assert outcome.reward == 1.0


async def test_a_crash_is_a_failure_with_the_end_of_its_output() -> None:
    with pytest.raises(BrokenEpisode, match=r"exited with code 1: (?s:.*)ZeroDivisionError"):
        await program("print('{\"reward\": 1}', flush=True); 1/0").run({}, POLICY)


@pytest.mark.parametrize("reward", ["NaN", "Infinity", "-Infinity", "1e999", "-1000001", "1e300"])
async def test_a_reward_that_no_advantage_survives_is_a_failure_that_names_it(reward: str) -> None:
    """Not the line before it either: what the program meant to say last counts."""
    agent = program(f"""print('{{"reward": 0.5}}'); print('{{"reward": {reward}}}')""")
    finish = await run_episode(agent, {}, POLICY, session_id=UUID(int=1), timeout_s=30.0, waited_s=never_held)
    assert finish.reward is None
    assert finish.failure == f"reward must be a number from -1,000,000 to 1,000,000, got {float(reward):g}"


async def test_a_metric_that_is_no_number_is_a_failure_that_names_it() -> None:
    with pytest.raises(BrokenEpisode, match=r"printed metrics\.depth: nan; accepted: finite numbers"):
        await program("""print('{"reward": 1, "metrics": {"depth": NaN}}')""").run({}, POLICY)


async def test_the_greatest_rewards_are_outcomes() -> None:
    for reward in ("-1000000", "1e6"):
        outcome = await program(f"""print('{{"reward": {reward}}}')""").run({}, POLICY)
        assert outcome.reward == float(reward)


async def test_a_program_without_a_reward_is_a_failure() -> None:
    with pytest.raises(BrokenEpisode, match=r"no JSON line with a number 'reward': \{\"reward\": \"high\"\}"):
        await program('print(\'{"reward": "high"}\')').run({}, POLICY)


async def test_a_program_that_does_not_exist_is_a_failure() -> None:
    with pytest.raises(BrokenEpisode, match="/no/such/program"):
        await CommandEnvironment(["/no/such/program"]).run({}, POLICY)


async def test_a_flood_of_output_is_read_and_only_its_end_kept() -> None:
    outcome = await program("print('x' * 5_000_000); print('{\"reward\": 1}')").run({}, POLICY)
    assert outcome.reward == 1.0


SPAWNS_A_GRANDCHILD = """
import subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"])
open({path!r} + ".part", "w").write(str(grandchild.pid))
__import__("os").rename({path!r} + ".part", {path!r})
time.sleep(600)
"""


async def test_the_tasks_own_timeout_is_an_outcome_and_kills_grandchildren(note_folder: Path) -> None:
    note = note_folder / "pid"
    environment = program(SPAWNS_A_GRANDCHILD.format(path=str(note)))
    finish = await run_episode(
        environment, {}, POLICY, session_id=uuid4(), timeout_s=2.0, waited_s=never_held
    )
    assert finish.reward == 0.0
    assert finish.is_timeout
    assert finish.failure is None
    grandchild = int(note.read_text())
    await until(lambda: not is_alive(grandchild), what="the grandchild is gone")


async def test_cancelling_an_episode_kills_grandchildren(note_folder: Path) -> None:
    note = note_folder / "pid"
    environment = program(SPAWNS_A_GRANDCHILD.format(path=str(note)))
    episode = asyncio.create_task(environment.run({}, POLICY))
    await until(note.exists, what="the grandchild runs")
    grandchild = int(note.read_text())
    assert is_alive(grandchild)
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    await until(lambda: not is_alive(grandchild), what="the grandchild is gone")


async def test_a_program_that_leaves_children_behind_is_cleaned_up_after_its_outcome(
    note_folder: Path,
) -> None:
    source = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"])
print('{"reward": 1, "metrics": {"pid": %d}}' % child.pid)
"""
    async with asyncio.timeout(20):
        outcome = await program(source).run({}, POLICY)
    await until(lambda: not is_alive(int(outcome.metrics["pid"])), what="the child is gone")


LEAVES_A_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({path!r} + ".part", "w").write(str(os.getpid()))
        os.rename({path!r} + ".part", {path!r})
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
while not os.path.exists({path!r}):
    time.sleep(0.01)
{rest}
"""


async def test_a_daemon_in_a_session_of_its_own_ends_with_the_program(note_folder: Path) -> None:
    note = note_folder / "pid"
    source = LEAVES_A_DAEMON.format(path=str(note), rest="print('{\"reward\": 1}')")
    outcome = await program(source).run({}, POLICY)
    assert outcome.reward == 1.0
    assert not is_alive(int(note.read_text())), "a process of the session goes on after its end"


async def test_cancelling_an_episode_ends_a_daemon_in_a_session_of_its_own(note_folder: Path) -> None:
    note = note_folder / "pid"
    source = LEAVES_A_DAEMON.format(path=str(note), rest="time.sleep(600)")
    episode = asyncio.create_task(program(source).run({}, POLICY))
    await until(note.exists, what="the daemon runs")
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert not is_alive(int(note.read_text())), "a process of the session goes on after its end"


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as other users")


@AS_ROOT
async def test_a_program_reads_no_secret_of_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the file of the machine's token, nor the environment or the memory of the processes above it."""
    token = tmp_path / "token"
    token.write_text("machine-token")
    token.chmod(0o600)
    monkeypatch.setenv("SEAMLESSFLOW_JOIN_TOKEN", "join-token")
    source = f"""
import json, os
parent = int(open(f"/proc/{{os.getppid()}}/stat").read().rpartition(")")[2].split()[1])
read = []
for path in ({str(token)!r}, f"/proc/{{os.getpid()}}/../{os.getpid()}/environ", f"/proc/{{os.getppid()}}/environ",
             "/proc/1/environ", f"/proc/{os.getpid()}/mem"):
    try:
        open(path, "rb").close()
        read.append(path)
    except OSError:
        pass
print(json.dumps({{"reward": 0, "metrics": {{"num_read": len(read)}}}}), flush=True)
"""
    outcome = await program(source).run({}, POLICY)
    assert outcome.metrics == {"num_read": 0}


@AS_ROOT
async def test_sessions_that_run_at_once_are_different_users_without_rights() -> None:
    source = """
import json, os, time
time.sleep(0.5)
print(json.dumps({"reward": 0, "metrics": {"user": os.getuid(), "group": os.getgid(), "groups": len(os.getgroups())}}))
"""
    both = await asyncio.gather(*(program(source).run({}, POLICY) for _ in range(2)))
    users = {outcome.metrics["user"] for outcome in both}
    assert len(users) == 2
    assert 0 not in users
    assert all(outcome.metrics["group"] == outcome.metrics["user"] for outcome in both)
    assert all(outcome.metrics["groups"] == 0 for outcome in both)


@AS_ROOT
async def test_a_program_that_its_user_may_not_run_is_named_with_what_to_do(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o700)
    with pytest.raises(
        BrokenEpisode, match=rf"{agent} could not be started by the agents' user \d+: .*let other"
    ):
        await CommandEnvironment([str(agent)]).run({}, POLICY)


async def test_a_program_that_forks_without_end_is_ended() -> None:
    source = """
import os
for _ in range(100):
    if os.fork() == 0:
        os.setsid()
print('{"reward": 1}', flush=True)
os.execlp("sleep", "sleep", "600")
""".replace("range(100)", "range(6)")
    environment = program(source)
    finish = await run_episode(
        environment, {}, POLICY, session_id=uuid4(), timeout_s=2.0, waited_s=never_held
    )
    assert finish.is_timeout


async def test_any_exception_of_an_environment_is_a_failure_not_a_outcome() -> None:
    class Broken:
        async def run(self, task: object, policy: object) -> object:
            raise TimeoutError("a database of the agent's own")

        async def close(self) -> None: ...

    finish = await run_episode(Broken(), {}, POLICY, session_id=uuid4(), timeout_s=30.0, waited_s=never_held)  # type: ignore[arg-type]
    assert finish.reward is None
    assert not finish.is_timeout
    assert finish.failure == "TimeoutError: a database of the agent's own"
