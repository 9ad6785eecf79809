"""Google's Agent Development Kit with its own Gemini model."""

import asyncio

from given_runs import QUESTIONS, SYSTEM, run_all, weather
from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types


async def converse(is_streamed):
    agent = Agent(name="weather_agent", model="gemini-3-flash", instruction=SYSTEM, tools=[weather])
    runner = InMemoryRunner(agent=agent, app_name="weather_app")
    session = await runner.session_service.create_session(app_name="weather_app", user_id="user")
    how = RunConfig(streaming_mode=StreamingMode.SSE if is_streamed else StreamingMode.NONE)
    answers, num_pieces = [], 0
    for question in QUESTIONS:
        said = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in runner.run_async(
            user_id="user", session_id=session.id, new_message=said, run_config=how
        ):
            num_pieces += bool(event.partial)
            if event.is_final_response() and event.content and event.content.parts:
                answer = "".join(part.text or "" for part in event.content.parts)
        answers.append(answer)
    return answers, num_pieces


def talk(api, is_streamed):
    return asyncio.run(converse(is_streamed))


run_all(talk)
