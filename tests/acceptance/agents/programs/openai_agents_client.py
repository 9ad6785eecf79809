"""The OpenAI Agents SDK, over Chat Completions or Responses."""

import asyncio

from agents import (
    Agent,
    Runner,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
    set_tracing_disabled,
)
from given_runs import QUESTIONS, SYSTEM, run_all, weather
from openai import AsyncOpenAI


async def ask(agent, items, is_streamed):
    if not is_streamed:
        return await Runner.run(agent, items), 0
    result = Runner.run_streamed(agent, items)
    num_pieces = 0
    async for event in result.stream_events():
        num_pieces += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    return result, num_pieces


async def converse(is_streamed):
    agent = Agent(name="weather", instructions=SYSTEM, tools=[function_tool(weather)])
    items, answers, num_pieces = [], [], 0
    for question in QUESTIONS:
        result, num = await ask(agent, [*items, {"role": "user", "content": question}], is_streamed)
        items = result.to_input_list()
        answers.append(result.final_output)
        num_pieces += num
    return answers, num_pieces


def talk(api, is_streamed):
    set_default_openai_api("chat_completions" if api == "chat" else "responses")
    set_default_openai_client(AsyncOpenAI(), use_for_tracing=False)  # for the key and address of this run
    return asyncio.run(converse(is_streamed))


set_tracing_disabled(True)
run_all(talk)
