"""The reward is 1 if the answer equals the task's `answer`, ignoring surrounding spaces, and 0 otherwise."""

from seamlessflow.core.environment.episodes import BrokenEpisode, Task
from seamlessflow.core.extensions.declarations import ExtensionOptions


class ExactAnswer:
    async def grade(self, task: Task, answer: str) -> float:
        if "answer" not in task:
            raise BrokenEpisode("the task has no 'answer' to compare with")
        return exact_reward(task, answer)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


def create(options: ExtensionOptions) -> ExactAnswer:
    return ExactAnswer()


def exact_reward(task: Task, answer: str) -> float:
    return float(answer.strip() == task["answer"])
