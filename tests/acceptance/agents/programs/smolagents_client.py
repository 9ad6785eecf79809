"""smolagents over Chat Completions: an agent that calls tools in code, and one that must call them (`tool_choice`)."""

import contextlib
import os
import sys

from given_runs import run_all, weather
from smolagents import ChatMessageStreamDelta, CodeAgent, FinalAnswerStep, OpenAIModel, ToolCallingAgent, tool

QUESTION = "«{}» Which is warmest: Oslo, Rome or Bern?"
AGENTS = {"code": CodeAgent, "calls": ToolCallingAgent}


@tool
def temperature(city: str) -> str:
    """Look up the temperature of a city.

    Args:
        city: its name
    """
    return weather(city)


def talk(api, is_streamed):
    model = OpenAIModel(
        "policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    agent = AGENTS[api]([temperature], model, stream_outputs=is_streamed, verbosity_level=0)
    answers, num_pieces = [], 0
    for question in (QUESTION.format(api), "Are you sure?"):
        with contextlib.redirect_stdout(sys.stderr):  # it shows what it streams
            events = list(agent.run(question, stream=True, reset=not answers))
        num_pieces += sum(isinstance(event, ChatMessageStreamDelta) for event in events)
        answers += [event.output for event in events if isinstance(event, FinalAnswerStep)]
    return answers, num_pieces


run_all(talk)
