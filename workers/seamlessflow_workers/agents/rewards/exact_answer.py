"""1 for an answer that is the task's `answer`, spaces around it aside; otherwise 0."""

from seamlessflow.core.environment.episodes import BrokenEpisode, Task
from seamlessflow.core.extensions.declarations import ExtensionOptions


class ExactAnswer:
    async def grade(self, task: Task, answer: str) -> float:
        if "answer" not in task:
            raise BrokenEpisode("the task has no 'answer' to compare with")
        return exact_reward(task, answer)

    async def close(self) -> None:
        """Do nothing: nothing is held."""


def create(options: ExtensionOptions) -> ExactAnswer:
    return ExactAnswer()


def exact_reward(task: Task, answer: str) -> float:
    return float(answer.strip() == task["answer"])
