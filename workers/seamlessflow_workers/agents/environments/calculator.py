"""Multi-turn calculator: the agent may call the tool `calc` before it answers.

Task: `{"question": "What is 285*966?", "answer": "275310"}`. The reward is 1 when the final answer is exactly `answer`.
"""

from typing import cast

import msgspec
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionMessageToolCallUnion

from seamlessflow_workers.agents.environments.base import POLICY_MODEL, PolicyEndpoint, Task, Verdict
from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL, InvalidExpression, calculate
from seamlessflow_workers.agents.environments.openai_client import SharedOpenAI

TOOL_ERROR = "error"


class CalcArguments(msgspec.Struct, frozen=True):
    expression: str


class CalculatorEnvironment:
    def __init__(self, clients: SharedOpenAI, *, max_turns: int) -> None:
        self._clients = clients
        self._max_turns = max_turns

    async def run(self, task: Task, policy: PolicyEndpoint) -> Verdict:
        client = self._clients.for_session(policy)
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task["question"]}]
        num_calls = 0
        for turn in range(1, self._max_turns + 1):
            content, calls = await _ask(client, messages)
            if not calls:
                reward = float((content or "").strip() == task["answer"])
                return Verdict(reward, metrics={"num_turns": turn, "num_tool_calls": num_calls})
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": _tool_answer(call)} for call in calls
            ]
            num_calls += len(calls)
        return Verdict(0.0, metrics={"num_turns": self._max_turns, "num_tool_calls": num_calls})

    async def close(self) -> None:
        await self._clients.close()


async def _ask(
    client: AsyncOpenAI, messages: list[ChatCompletionMessageParam]
) -> tuple[str | None, list[ChatCompletionMessageToolCallUnion]]:
    """Ask the policy and append its message to the conversation."""
    # The SDK's `chat.completions.create` spends a quarter of a call walking messages that are plain JSON already.
    body = {"model": POLICY_MODEL, "messages": messages, "tools": [CALC_TOOL]}
    completion = await client.post("/chat/completions", cast_to=ChatCompletion, body=body)
    message = completion.choices[0].message
    said = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
    messages.append(cast("ChatCompletionMessageParam", said))
    return message.content, message.tool_calls or []


def _tool_answer(call: ChatCompletionMessageToolCallUnion) -> str:
    if call.type != "function" or call.function.name != "calc":
        return TOOL_ERROR
    try:
        return calculate(msgspec.json.decode(call.function.arguments, type=CalcArguments).expression)
    except (msgspec.DecodeError, InvalidExpression):
        return TOOL_ERROR
