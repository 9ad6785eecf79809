"""Single-turn arithmetic: one question, one answer.

Task: `{"question": "What is 7+12?", "answer": "19"}`. The reward is 1 if the answer is exactly `answer`.
"""

from seamlessflow.core.environment.episodes import Outcome, PolicyEndpoint, Task
from seamlessflow.core.extensions.declarations import EnvironmentContext
from seamlessflow_workers.agents.environments.policy_client import PolicyClient
from seamlessflow_workers.agents.rewards.exact_answer import exact_reward


class ArithmeticEnvironment:
    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        message = await self._client.ask(policy, [{"role": "user", "content": task["question"]}])
        answer = message.content or ""
        return Outcome(exact_reward(task, answer), answer=answer)

    async def close(self) -> None:
        await self._client.close()


def create(context: EnvironmentContext) -> ArithmeticEnvironment:
    return ArithmeticEnvironment(PolicyClient())
