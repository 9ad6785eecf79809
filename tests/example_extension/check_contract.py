"""Runs the platform's contract suite on this package: `pytest check_contract.py`, once it is installed."""

from seamlessflow.extensions import Task
from seamlessflow.extensions.contracts import AdvantageContract, EnvironmentContract, RewardContract

TASK = {"question": "Say a number."}


class TestOneQuestion(EnvironmentContract):
    name = "one_question"
    options = {"prefix": "Please: "}
    tasks = (TASK,)

    def best_answer(self, task: Task) -> str:
        return "42"


class TestEvenDigits(RewardContract):
    name = "even_digits"
    examples = ((TASK, "2468", "1357"), (TASK, "12", "13"), (TASK, "2", ""))


class TestRank(AdvantageContract):
    name = "rank"
