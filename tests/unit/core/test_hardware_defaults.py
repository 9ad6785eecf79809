"""Engine and number format that suit the machines a job could use, unless its author chose them."""

from collections.abc import Mapping
from typing import Any

import pytest

from seamlessflow.core.hardware_defaults import Hardware, hardware_filled
from seamlessflow.core.job_spec import job_spec_parse

Body = Mapping[str, Any]
MODEL = {"source": "artifact://art_0"}
BODY: Body = {
    "name": "calculator",
    "model": MODEL,
    "environment": {"name": "calculator", "tasks": "artifact://art_1"},
}


def machine(*tags: str, gpu: str | None = None, engines: tuple[str, ...] = ("embedded",)) -> Hardware:
    labels = frozenset() if gpu is None else frozenset({f"gpu={gpu}", "gpus=8"})
    return Hardware(frozenset(tags), labels, frozenset(engines))


BOTH = ("embedded", "vllm")
NODE = machine("rollout", "train", gpu="h100", engines=BOTH)
CPU = machine("rollout", "train")


def chosen(machines: list[Hardware], **changes: Any) -> tuple[str, str]:
    body = {**BODY, **changes}
    spec = job_spec_parse(hardware_filled(body, job_spec_parse(body), machines))
    return spec.rollout.engine, spec.model.dtype


@pytest.mark.parametrize(
    "machines,engine,dtype",
    [
        ([], "embedded", "float32"),
        ([CPU], "embedded", "float32"),
        ([NODE], "vllm", "bfloat16"),
        ([NODE, machine("agent")], "vllm", "bfloat16"),
        # The CPU machine could train, and its engine is not of the kind that is chosen.
        ([NODE, CPU], "vllm", "float32"),
        ([NODE, machine("rollout")], "vllm", "bfloat16"),
        ([machine("rollout", "train", gpu="a100")], "embedded", "bfloat16"),
        ([machine("rollout", "train", gpu="v100", engines=BOTH)], "vllm", "float32"),
        # vLLM's CPU build is no reason to prefer it.
        ([machine("rollout", "train", engines=BOTH)], "embedded", "float32"),
    ],
)
def test_engine_and_format_follow_the_machines(machines: list[Hardware], engine: str, dtype: str) -> None:
    assert chosen(machines) == (engine, dtype)


def test_what_the_author_wrote_stays() -> None:
    assert chosen([NODE], rollout={"engine": "embedded"}) == ("embedded", "bfloat16")
    assert chosen([NODE], model={**MODEL, "dtype": "float32"}) == ("vllm", "float32")


def test_only_machines_that_match_the_placement_count() -> None:
    lab = machine("rollout", "train", "lab")
    placement = {"rollout": ["lab"], "train": ["lab"]}
    assert chosen([NODE, lab], placement=placement) == ("embedded", "float32")
    hopper = {"rollout": ["gpu=h100"], "train": ["gpu=h100"]}
    assert chosen([NODE, CPU], placement=hopper) == ("vllm", "bfloat16")


def test_a_job_that_continues_another_keeps_the_usual_format() -> None:
    assert chosen([NODE], train={"continue_from": "job_x"}) == ("vllm", "float32")


def test_a_job_without_engines_is_judged_by_its_trainers_alone() -> None:
    changes = {
        "environment": {"name": "none"},
        "data": {"source": "trajectories", "jobs": ["another"]},
        "algorithm": {"name": "sft"},
    }
    assert chosen([machine("train", gpu="h200"), machine("rollout")], **changes) == ("embedded", "bfloat16")


def test_the_body_is_the_very_same_if_the_usual_defaults_suit() -> None:
    assert hardware_filled(BODY, job_spec_parse(BODY), [CPU]) is BODY
