"""Multi-turn calculator: the agent may call the tool `calc` before it answers.

Task: `{"question": "What is 285*966?", "answer": "275310"}`. The reward is 1 if the final answer is exactly `answer`.
"""

import msgspec

from seamlessflow.core.environment.episodes import Outcome, PolicyEndpoint, Task
from seamlessflow.core.extensions.declarations import EnvironmentContext
from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL, InvalidExpression, calculate
from seamlessflow_workers.agents.environments.policy_client import PolicyClient, ToolCall
from seamlessflow_workers.agents.rewards.exact_answer import exact_reward

TOOL_ERROR = "error"


class CalcArguments(msgspec.Struct, frozen=True):
    expression: str


class CalculatorEnvironment:
    def __init__(self, client: PolicyClient, *, max_turns: int) -> None:
        self._client = client
        self._max_turns = max_turns

    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        messages: list[object] = [{"role": "user", "content": task["question"]}]
        num_calls = 0
        for turn in range(1, self._max_turns + 1):
            reply = await self._client.ask(policy, messages, tools=[CALC_TOOL])
            calls = reply.tool_calls or []
            if not calls:
                answer = reply.content or ""
                counts = {"num_turns": turn, "num_tool_calls": num_calls}
                return Outcome(exact_reward(task, answer), metrics=counts, answer=answer)
            messages += [reply]
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": _tool_answer(call)} for call in calls
            ]
            num_calls += len(calls)
        counts = {"num_turns": self._max_turns, "num_tool_calls": num_calls}
        return Outcome(0.0, metrics=counts, answer="")

    async def close(self) -> None:
        await self._client.close()


def create(context: EnvironmentContext) -> CalculatorEnvironment:
    return CalculatorEnvironment(PolicyClient(), max_turns=context.section.max_turns)


def _tool_answer(call: ToolCall) -> str:
    if call.type != "function" or call.function.name != "calc":
        return TOOL_ERROR
    try:
        return calculate(msgspec.json.decode(call.function.arguments, type=CalcArguments).expression)
    except (msgspec.DecodeError, InvalidExpression):
        return TOOL_ERROR
