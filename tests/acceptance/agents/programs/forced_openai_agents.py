"""The OpenAI Agents SDK: a tool that must be called first, then an output type."""

import asyncio

from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
    set_tracing_disabled,
)
from forced_answers import QUESTION, Weather, look_up
from given_runs import run_all
from openai import AsyncOpenAI


async def ask(is_streamed):
    agent = Agent(
        name="weather",
        tools=[function_tool(look_up)],
        model_settings=ModelSettings(tool_choice="required"),
        output_type=Weather,
    )
    if not is_streamed:
        return await Runner.run(agent, QUESTION), 0
    result = Runner.run_streamed(agent, QUESTION)
    num_pieces = 0
    async for event in result.stream_events():
        num_pieces += event.type == "raw_response_event" and event.data.type.endswith(".delta")
    return result, num_pieces


def talk(api, is_streamed):
    set_default_openai_api("chat_completions" if api == "chat" else "responses")
    set_default_openai_client(AsyncOpenAI(), use_for_tracing=False)  # for the key and address of this run
    result, num_pieces = asyncio.run(ask(is_streamed))
    assert any(item.type == "tool_call_output_item" for item in result.new_items)
    return [result.final_output.model_dump()], num_pieces


set_tracing_disabled(True)
run_all(talk)
