"""The `anthropic` client: a form of the answer, and a tool that must be called."""

import anthropic
from forced_answers import QUESTION, Weather
from given_runs import run_all

TOOL = {"name": "report", "input_schema": Weather.model_json_schema()}
ASKED = {
    "model": "claude-sonnet-5",
    "max_tokens": 500,
    "messages": [{"role": "user", "content": QUESTION}],
}


def ask(client, is_streamed, **asked):
    """Return the message and the number of pieces that came."""
    if not is_streamed:
        make = client.messages.parse if "output_format" in asked else client.messages.create
        return make(**ASKED, **asked), 0
    with client.messages.stream(**ASKED, **asked) as stream:
        num_pieces = sum(event.type == "content_block_delta" for event in stream)
        return stream.get_final_message(), num_pieces


def talk(api, is_streamed):
    schema = anthropic.transform_schema(Weather)
    config = {"format": {"type": "json_schema", "schema": schema}}
    with anthropic.Anthropic() as client:
        parsed, num_parsed = ask(client, is_streamed, output_format=Weather)
        formed, num_formed = ask(client, is_streamed, output_config=config)
        called, num_called = ask(client, is_streamed, tools=[TOOL], tool_choice={"type": "any"})
    (call,) = [block for block in called.content if block.type == "tool_use"]
    found = [
        parsed.parsed_output,
        Weather.model_validate_json(formed.content[-1].text),
        Weather(**call.input),
    ]
    return [weather.model_dump() for weather in found], num_parsed + num_formed + num_called


run_all(talk)
