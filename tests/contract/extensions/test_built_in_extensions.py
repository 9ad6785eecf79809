"""The contract suite of extensions on everything that comes with the platform."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from seamlessflow.core.algorithms.estimators import Estimator, built_in_estimator
from seamlessflow.core.algorithms.options import AdvantageEstimator, AdvantageNorm
from seamlessflow.core.environment.episodes import Task
from seamlessflow.extensions.contracts import EnvironmentContract, EstimatorContract, RewardContract

SUM = {"question": "What is 7+12?", "answer": "19"}
PRODUCT = {"question": "What is 285*966?", "answer": "275310"}
# A program as a job would bring it: one question, with nothing but the standard library.
PROGRAM = """
import json, os, urllib.request
task = json.loads(os.environ["SEAMLESSFLOW_TASK"])
body = {"model": "policy", "messages": [{"role": "user", "content": task["question"]}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
)
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
print(json.dumps({"reward": float(said == task["answer"])}))
"""


class _WithAnswers(EnvironmentContract):
    def best_answer(self, task: Task) -> str:
        return str(task["answer"])


class TestArithmetic(_WithAnswers):
    name = "arithmetic"
    tasks = (SUM,)


class TestCalculator(_WithAnswers):
    name = "calculator"
    tasks = (PRODUCT,)

    def wrong_answer(self, task: Task) -> Mapping[str, Any]:
        function = {"name": "calc", "arguments": json.dumps({"expression": "1+1"})}
        call = {"id": "c1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}  # until its turns are over


class TestCommand(_WithAnswers):
    name = "command"
    tasks = (SUM,)
    section = {"command": [sys.executable, "-I", "-c", PROGRAM]}


class TestExactAnswer(RewardContract):
    name = "exact_answer"
    examples = ((SUM, " 19\n", "20"), (PRODUCT, "275310", "275310."))


RELATIVE = (AdvantageEstimator.GROUP, AdvantageEstimator.LEAVE_ONE_OUT)
BATCH_WIDE = (AdvantageEstimator.BATCH, AdvantageEstimator.BATCH_WITH_BASELINE, AdvantageEstimator.ONE)


class TestEstimators(EstimatorContract):
    """Of all but mode-aware advantages, which need more than rewards."""

    @pytest.fixture(autouse=True, params=[*RELATIVE, *BATCH_WIDE])
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.chosen: AdvantageEstimator = request.param
        self.is_group_relative = self.chosen in RELATIVE

    def estimator(self) -> Estimator:
        return built_in_estimator(self.chosen, norm=AdvantageNorm.MEAN_STD)
