"""The `ToolCallingAgent` of smolagents, which requires a tool with every request."""

import contextlib
import os
import sys

from forced_answers import QUESTION, base_url, look_up
from given_runs import run_all
from smolagents import ChatMessageStreamDelta, OpenAIModel, ToolCallingAgent, tool

MAX_STEPS = 16


def talk(api, is_streamed):
    model = OpenAIModel("gpt-5", api_base=base_url(), api_key=os.environ["OPENAI_API_KEY"])
    with contextlib.redirect_stdout(sys.stderr):  # it shows streams there
        agent = ToolCallingAgent(
            [tool(look_up)], model, max_steps=MAX_STEPS, stream_outputs=is_streamed, verbosity_level=0
        )
        events = list(agent.run(QUESTION, stream=True))
    steps = agent.memory.get_full_steps()[1:]  # the first is the task
    called = [call["function"]["name"] for step in steps for call in step.get("tool_calls") or ()]
    errors = [step["error"] for step in steps if step.get("error")]
    num_pieces = sum(isinstance(event, ChatMessageStreamDelta) for event in events)
    return [{"called": called, "errors": errors}], num_pieces


run_all(talk)
