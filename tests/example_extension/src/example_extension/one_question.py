"""An environment of one turn. Task: `{"question": "Say a number."}`. Its own reward is 1 for an
answer with a digit."""

from example_extension.declarations import QuestionOptions
from seamlessflow.extensions import EnvironmentContext, Outcome, PolicyEndpoint, Task
from seamlessflow_workers.agents.environments.policy_client import PolicyClient


class OneQuestion:
    def __init__(self, options: QuestionOptions) -> None:
        self._prefix = options.prefix
        self._client = PolicyClient()  # retries what may pass; any client that speaks OpenAI's API would do

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        said = await self._client.ask(policy, [{"role": "user", "content": self._prefix + task["question"]}])
        answer = said.content or ""
        has_digit = any(character in "0123456789" for character in answer)
        return Outcome(float(has_digit), metrics={"num_characters": float(len(answer))}, answer=answer)

    async def close(self) -> None:
        await self._client.close()


def create(context: EnvironmentContext) -> OneQuestion:
    assert isinstance(context.options, QuestionOptions)
    return OneQuestion(context.options)
