"""The `openai` client: `parse` and its streams, with a form of the answer and with a forced tool."""

import json

import openai
from forced_answers import QUESTION, Weather
from given_runs import run_all

TOOL = openai.pydantic_function_tool(Weather, name="report")
MESSAGES = [{"role": "user", "content": QUESTION}]


def chat(client, is_streamed, **asked):
    """Return the message and the number of pieces that came."""
    asked |= {"model": "gpt-5", "messages": MESSAGES}
    if not is_streamed:
        return client.chat.completions.parse(**asked).choices[0].message, 0
    with client.chat.completions.stream(**asked) as stream:
        num_pieces = sum(event.type == "chunk" for event in stream)
        return stream.get_final_completion().choices[0].message, num_pieces


def responses(client, is_streamed, **asked):
    asked |= {"model": "gpt-5", "input": QUESTION}
    if not is_streamed:
        return client.responses.parse(**asked), 0
    with client.responses.stream(**asked) as stream:
        num_pieces = sum(event.type.endswith(".delta") for event in stream)
        return stream.get_final_response(), num_pieces


def over_chat(client, is_streamed):
    formed, num_formed = chat(client, is_streamed, response_format=Weather)
    called, num_called = chat(
        client, is_streamed, tools=[TOOL], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = called.tool_calls
    return [formed.parsed, call.function.parsed_arguments], num_formed + num_called


def over_responses(client, is_streamed):
    tool = {"type": "function", **TOOL["function"]}
    formed, num_formed = responses(client, is_streamed, text_format=Weather)
    called, num_called = responses(
        client, is_streamed, tools=[tool], tool_choice={"type": "function", "name": "report"}
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    return [formed.output_parsed, Weather(**json.loads(call.arguments))], num_formed + num_called


def talk(api, is_streamed):
    with openai.OpenAI() as client:
        found, num_pieces = (over_chat if api == "chat" else over_responses)(client, is_streamed)
    return [weather.model_dump() for weather in found], num_pieces


run_all(talk)
