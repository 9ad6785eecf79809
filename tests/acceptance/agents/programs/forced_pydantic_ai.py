"""Pydantic AI: an output type, by a forced tool and by the API's own form of answers."""

import asyncio

from forced_answers import QUESTION, Weather
from given_runs import run_all
from pydantic_ai import Agent, NativeOutput, PartDeltaEvent

MODELS = {
    "chat": "openai-chat:gpt-5",
    "responses": "openai-responses:gpt-5",
    "messages": "anthropic:claude-sonnet-5",
}


async def converse(api, is_streamed):
    found, num_pieces = [], 0

    async def watch(_, events):
        nonlocal num_pieces
        async for event in events:
            num_pieces += isinstance(event, PartDeltaEvent)

    for output_type in (Weather, NativeOutput(Weather)):
        agent = Agent(MODELS[api], output_type=output_type)
        result = await agent.run(QUESTION, event_stream_handler=watch if is_streamed else None)
        found.append(result.output.model_dump())
    return found, num_pieces


def talk(api, is_streamed):
    return asyncio.run(converse(api, is_streamed))


run_all(talk)
