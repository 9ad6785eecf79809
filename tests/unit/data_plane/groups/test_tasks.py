"""Which task a group runs, with the in-memory twin of the store."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.groups.tasks import task_choose
from seamlessflow.data_plane.store.groups.epochs import StageChange, StageRequest
from tests.fakes.memory_epochs import FinalizedGroup, MemoryEpochs

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
STAGES = [{"name": "easy", "domains": ["easy"], "until_update": 2}, {"name": "hard", "domains": ["hard"]}]


def spec_of(**algorithm: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "tiny",
            "model": {"source": "model", "max_model_len": 512},
            "environment": {"name": "command", "tasks": "tasks.jsonl", "command": ["true"]},
            "rollout": {"group_size": 2, "groups_per_batch": 1, "max_tokens_per_turn": 200},
            "algorithm": {"advantage_norm": "mean", **algorithm},
            "train": {"num_updates": 5},
        }
    )


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "tasks.jsonl"
    lines = [{"domain": domain, "number": n} for n, domain in enumerate(["easy", "easy", "hard", "hard"])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


async def test_without_stages_each_epoch_runs_every_task_once_and_stores_nothing(tasks: str) -> None:
    epochs = MemoryEpochs(lambda: NOW)
    chosen = [(await task_choose(epochs, spec_of(), tasks, index))[0] for index in range(8)]
    assert sorted(chosen[:4]) == sorted(chosen[4:]) == [0, 1, 2, 3]
    assert epochs.epochs == []


async def test_an_epoch_of_a_stage_runs_only_its_tasks_and_is_stored_once(tasks: str) -> None:
    epochs = MemoryEpochs(lambda: NOW)
    chosen = [(await task_choose(epochs, spec_of(stages=STAGES), tasks, index))[0] for index in range(2)]
    assert sorted(chosen) == [0, 1]
    assert len(epochs.epochs) == 1


async def test_a_stage_ends_after_its_updates_and_the_change_is_told(tasks: str) -> None:
    epochs = MemoryEpochs(lambda: NOW)
    await task_choose(epochs, spec_of(stages=STAGES), tasks, 0)
    epochs.num_updates = 2
    _, task = await task_choose(epochs, spec_of(stages=STAGES), tasks, 1)
    assert task["domain"] == "hard"
    (change,) = epochs.changes
    assert (change.source, change.target) == ("easy", "hard")


async def test_a_person_switches_the_stage_in_the_middle_of_an_epoch(tasks: str) -> None:
    epochs = MemoryEpochs(lambda: NOW)
    await task_choose(epochs, spec_of(stages=STAGES), tasks, 0)
    epochs.request = StageRequest(1, 1)
    _, task = await task_choose(epochs, spec_of(stages=STAGES), tasks, 1)
    assert task["domain"] == "hard"
    assert epochs.changes == [StageChange("easy", "hard", "switched by hand")]


async def test_history_leaves_out_what_every_session_solved(tasks: str) -> None:
    epochs = MemoryEpochs(lambda: NOW)
    spec = spec_of(sampling={"history": True})
    first = [(await task_choose(epochs, spec, tasks, index))[0] for index in range(4)]
    assert sorted(first) == [0, 1, 2, 3]
    epochs.groups = [FinalizedGroup(0, 0, NOW, 1.0), FinalizedGroup(1, 1, NOW, 0.0)]
    await task_choose(epochs, spec, tasks, 4)
    assert 0 not in epochs.epochs[-1][0].order.tolist()


async def test_a_file_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="cannot be read"):
        await task_choose(MemoryEpochs(lambda: NOW), spec_of(), str(tmp_path / "none.jsonl"), 0)
