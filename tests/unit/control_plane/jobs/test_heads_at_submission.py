"""Sequences are shared only by as many processes as can divide the model's heads, which its configuration tells."""

import json
from pathlib import Path

import pytest

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.submission.model_checks import heads_check
from seamlessflow.control_plane.jobs.submission.model_folder import ModelFolder
from seamlessflow.core.training.section import TrainSection


def sharing(num_ranks: int) -> TrainSection:
    return TrainSection.model_validate({"num_ranks": num_ranks, "parallel": {"sequence": num_ranks}})


def folder_with(folder: Path, config: dict[str, object]) -> ModelFolder:
    (folder / "config.json").write_text(json.dumps(config))
    return ModelFolder(folder)


@pytest.mark.parametrize("is_nested", [False, True])
def test_heads_that_processes_cannot_divide_are_refused_with_what_is_accepted(
    tmp_path: Path, is_nested: bool
) -> None:
    heads: dict[str, object] = {"num_attention_heads": 6}
    folder = folder_with(tmp_path, {"text_config": heads} if is_nested else heads)
    for accepted in (1, 2, 3, 6):
        heads_check(folder, sharing(accepted))
    with pytest.raises(ApplicationError) as refused:
        heads_check(folder, sharing(4))
    (problem,) = refused.value.faults
    assert (problem.field, problem.detail) == (
        "train.parallel.sequence",
        "4 does not divide the model's 6 attention heads; accepted: 1, 2, 3, 6",
    )


def test_what_the_configuration_does_not_tell_is_left_to_the_trainer(tmp_path: Path) -> None:
    heads_check(folder_with(tmp_path, {"n_head": 6}), sharing(4))
