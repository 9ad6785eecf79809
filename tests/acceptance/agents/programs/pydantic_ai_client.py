"""Pydantic AI, over each API."""

import asyncio

from given_runs import QUESTIONS, SYSTEM, run_all, weather
from pydantic_ai import Agent, PartDeltaEvent, TextPartDelta

MODELS = {
    "chat": "openai-chat:gpt-5",
    "responses": "openai-responses:gpt-5",
    "messages": "anthropic:claude-sonnet-5",
}


async def converse(api, is_streamed):
    agent = Agent(MODELS[api], instructions=SYSTEM, tools=[weather])
    num_pieces, answers, history = 0, [], []

    async def watch(_, events):
        nonlocal num_pieces
        async for event in events:
            num_pieces += isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta)

    for question in QUESTIONS:
        result = await agent.run(
            question, message_history=history, event_stream_handler=watch if is_streamed else None
        )
        history = result.all_messages()
        answers.append(result.output)
    return answers, num_pieces


def talk(api, is_streamed):
    return asyncio.run(converse(api, is_streamed))


run_all(talk)
