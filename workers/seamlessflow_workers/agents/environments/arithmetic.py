"""Single-turn arithmetic: one question, one answer.

Task: `{"question": "What is 7+12?", "answer": "19"}`. The reward is 1 when the answer is exactly `answer`.
"""

from seamlessflow_workers.agents.environments.base import Outcome, PolicyEndpoint, Task
from seamlessflow_workers.agents.environments.policy_client import PolicyClient


class ArithmeticEnvironment:
    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        said = await self._client.ask(policy, [{"role": "user", "content": task["question"]}])
        return Outcome(float((said.content or "").strip() == task["answer"]))

    async def close(self) -> None:
        await self._client.close()
