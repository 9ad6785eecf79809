"""Microsoft's Agent Framework with its `OpenAIChatClient`, which lets the server keep the conversation."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from given_runs import QUESTIONS, SYSTEM, run_all, weather


async def converse(is_streamed):
    agent = Agent(OpenAIChatClient(model="gpt-5"), SYSTEM, tools=[weather])
    session = agent.create_session()
    answers, num_pieces = [], 0
    for question in QUESTIONS:
        if is_streamed:
            stream = agent.run(question, session=session, stream=True)
            num_pieces += len([piece async for piece in stream])
            answer = await stream.get_final_response()
        else:
            answer = await agent.run(question, session=session)
        answers.append(answer.text.removeprefix("I look first."))
    return answers, num_pieces


def talk(api, is_streamed):
    return asyncio.run(converse(is_streamed))


run_all(talk)
