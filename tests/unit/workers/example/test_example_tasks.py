"""Task files of the example: the same seed gives the same tasks, and their answers are right."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from seamlessflow_workers.agents.environments.calc_tool import calculate
from seamlessflow_workers.example.tasks import ExampleEnvironment, ExampleTask, iter_tasks, write_tasks


def tasks(environment: ExampleEnvironment, *, seed: int = 0, num_tasks: int = 200) -> list[ExampleTask]:
    return list(iter_tasks(environment, num_tasks=num_tasks, seed=seed))


@pytest.mark.parametrize("environment", ExampleEnvironment)
def test_answers_are_right_and_ids_unique(environment: ExampleEnvironment) -> None:
    made = tasks(environment)
    assert len({task.id for task in made}) == len(made)
    for task in made:
        expression = task.question.removeprefix("What is ").removesuffix("?")
        assert calculate(expression) == task.answer


def test_the_seed_and_the_environment_decide_the_tasks() -> None:
    calculator = ExampleEnvironment.CALCULATOR
    assert tasks(calculator) == tasks(calculator)
    assert tasks(calculator) != tasks(calculator, seed=1)
    assert tasks(calculator)[:50] == tasks(calculator, num_tasks=50)


def test_calculator_answers_have_six_digits_and_cannot_be_guessed() -> None:
    made = tasks(ExampleEnvironment.CALCULATOR, num_tasks=1000)
    assert {len(task.answer) for task in made} == {6}
    assert len({task.answer for task in made}) > 900


def test_the_file_holds_one_task_a_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tasks.jsonl"
    write_tasks(path, ExampleEnvironment.CALCULATOR, num_tasks=20, seed=3)
    lines = path.read_bytes().splitlines()
    read = [msgspec.json.decode(line, type=ExampleTask) for line in lines]
    assert read == tasks(ExampleEnvironment.CALCULATOR, seed=3, num_tasks=20)


def test_making_tasks_imports_no_torch() -> None:
    script = "import seamlessflow_workers.example.tasks, sys; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
