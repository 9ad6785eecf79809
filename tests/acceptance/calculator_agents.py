"""Agents of one's own that work out the calculator's tasks, each with another API of the gateway and its own client.

Enter: a task and the address and key of a session. Leaves: the answer, after at most `MAX_TURNS` requests. They use the
clients as their makers document them; only address and key differ.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
from transformers import AutoTokenizer

from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL, InvalidExpression, calculate

MAX_TURNS = 3
MAX_TOKENS = 32
CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
MODEL = "policy"

Ask = Callable[[str, "Address"], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Address:
    """A session as its agent knows it. `base_url` ends in /v1."""

    base_url: str
    api_key: str


class CalculatorAgents:
    """One client per API, shared by all sessions. `answer[API]` works on one question."""

    def __init__(self, model: Path, base_url: str) -> None:
        self._openai = openai.AsyncOpenAI(base_url=base_url, api_key="of each session", max_retries=5)
        self._anthropic = anthropic.AsyncAnthropic(
            base_url=base_url.removesuffix("/v1"), api_key="of each session", max_retries=5
        )
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self.answer: dict[str, Ask] = {
            "chat": self._by_chat,
            "completions": self._by_completions,
            "responses": self._by_responses,
            "messages": self._by_messages,
        }

    async def close(self) -> None:
        await self._openai.close()
        await self._anthropic.close()

    async def _by_chat(self, question: str, address: Address) -> str:
        client = self._openai.with_options(base_url=address.base_url, api_key=address.api_key)
        messages: list[Any] = [{"role": "user", "content": question}]
        for _ in range(MAX_TURNS):
            tools: Any = [CALC_TOOL]
            said = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            message = said.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message)
            for call in message.tool_calls:
                assert call.type == "function"
                result = _result(call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return ""

    async def _by_completions(self, question: str, address: Address) -> str:
        """Render the prompts here, as programs do that know the model's template."""
        client = self._openai.with_options(base_url=address.base_url, api_key=address.api_key)
        messages = [{"role": "user", "content": question}]
        for _ in range(MAX_TURNS):
            prompt = self._tokenizer.apply_chat_template(
                messages, tools=[CALC_TOOL], tokenize=False, add_generation_prompt=True
            )
            said = await client.completions.create(model=MODEL, prompt=prompt, max_tokens=MAX_TOKENS)
            text = said.choices[0].text
            calls = CALL.findall(text)
            if not calls:
                return text
            messages.append({"role": "assistant", "content": text})
            messages += [{"role": "tool", "content": _written_result(call)} for call in calls]
        return ""

    async def _by_responses(self, question: str, address: Address) -> str:
        client = self._openai.with_options(base_url=address.base_url, api_key=address.api_key)
        items: Any = [{"role": "user", "content": question}]
        tools: Any = [{"type": "function", "strict": False, **CALC_TOOL["function"]}]
        for _ in range(MAX_TURNS):
            said = await client.responses.create(model=MODEL, input=items, tools=tools, store=False)
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return said.output_text
            items += said.output
            items += [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": _result(call.name, call.arguments),
                }
                for call in calls
            ]
        return ""

    async def _by_messages(self, question: str, address: Address) -> str:
        client = self._anthropic.with_options(
            base_url=address.base_url.removesuffix("/v1"), api_key=address.api_key
        )
        function = CALC_TOOL["function"]
        tools: Any = [
            {
                "name": function["name"],
                "description": function["description"],
                "input_schema": function["parameters"],
            }
        ]
        messages: list[Any] = [{"role": "user", "content": question}]
        for _ in range(MAX_TURNS):
            said = await client.messages.create(
                model=MODEL, messages=messages, tools=tools, max_tokens=MAX_TOKENS
            )
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in said.content if block.type == "text")
            messages.append({"role": "assistant", "content": said.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": _result(call.name, json.dumps(call.input)),
                }
                for call in calls
            ]
            messages.append({"role": "user", "content": results})
        return ""


def _written_result(call: str) -> str:
    try:
        read = json.loads(call)
        return _result(read["name"], json.dumps(read["arguments"]))
    except (ValueError, KeyError, TypeError):
        return "error"


def _result(name: str, arguments: str) -> str:
    if name != "calc":
        return "error"
    try:
        return calculate(json.loads(arguments)["expression"])
    except (ValueError, KeyError, TypeError, InvalidExpression):
        return "error"
