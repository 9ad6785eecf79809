"""Single-turn arithmetic: one question, one answer.

Task: `{"question": "What is 7+12?", "answer": "19"}`. The reward is 1 when the answer is exactly `answer`.
"""

from seamlessflow_workers.agents.environments.base import POLICY_MODEL, PolicyEndpoint, Task, Verdict
from seamlessflow_workers.agents.environments.openai_client import SharedOpenAI


class ArithmeticEnvironment:
    def __init__(self, clients: SharedOpenAI) -> None:
        self._clients = clients

    async def run(self, task: Task, policy: PolicyEndpoint) -> Verdict:
        client = self._clients.for_session(policy)
        completion = await client.chat.completions.create(
            model=POLICY_MODEL, messages=[{"role": "user", "content": task["question"]}]
        )
        answer = (completion.choices[0].message.content or "").strip()
        return Verdict(float(answer == task["answer"]))

    async def close(self) -> None:
        await self._clients.close()
