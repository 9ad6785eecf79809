"""Semantic Kernel's `OpenAIResponsesAgent`, which lets the server keep the conversation."""

import asyncio

from given_runs import QUESTIONS, SYSTEM, run_all, weather
from openai import AsyncOpenAI
from semantic_kernel.agents import OpenAIResponsesAgent
from semantic_kernel.functions import kernel_function


class Weather:
    @kernel_function(name="weather", description="Temperature of a city.")
    def weather(self, city: str) -> str:
        return weather(city)


async def converse(is_streamed):
    agent = OpenAIResponsesAgent(
        ai_model_id="gpt-5", client=AsyncOpenAI(), instructions=SYSTEM, name="weather", plugins=[Weather()]
    )
    thread, answers, num_pieces = None, [], 0
    for question in QUESTIONS:
        if is_streamed:
            pieces = []
            async for piece in agent.invoke_stream(messages=question, thread=thread):
                thread = piece.thread
                pieces.append(str(piece))
            num_pieces += len(pieces)
            answers.append("".join(pieces).removeprefix("I look first."))
        else:
            response = await agent.get_response(messages=question, thread=thread)
            thread = response.thread
            answers.append(str(response))
    return answers, num_pieces


def talk(api, is_streamed):
    return asyncio.run(converse(is_streamed))


run_all(talk)
