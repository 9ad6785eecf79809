"""LiteLLM as a library, over each API that it speaks to a server."""

import json

import litellm
from given_runs import QUESTIONS, SCHEMA, SYSTEM, run_all, weather

TOOL = {"name": "weather", "description": "Temperature of a city.", "parameters": SCHEMA}
MODELS = {"chat": "openai/gpt-5", "messages": "anthropic/claude-sonnet-5"}


def chat(model, messages, is_streamed):
    num_pieces = 0
    while True:
        answer = litellm.completion(
            model=model, messages=messages, tools=[{"type": "function", "function": TOOL}], stream=is_streamed
        )
        if is_streamed:
            chunks = list(answer)
            num_pieces += sum(bool(chunk.choices[0].delta.content) for chunk in chunks)
            answer = litellm.stream_chunk_builder(chunks, messages=messages)
        message = answer.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            return message.content, num_pieces


def responses(items, is_streamed):
    num_pieces = 0
    while True:
        answer = litellm.responses(
            model="openai/gpt-5", input=items, tools=[{"type": "function", **TOOL}], stream=is_streamed
        )
        if is_streamed:
            events = list(answer)
            num_pieces += sum(event.type == "response.output_text.delta" for event in events)
            answer = events[-1].response
        output = [
            item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in answer.output
        ]
        items += output
        calls = [item for item in output if item["type"] == "function_call"]
        for call in calls:
            result = weather(**json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})
        if not calls:
            return output[-1]["content"][0]["text"], num_pieces


def talk(api, is_streamed):
    said, answers, num_pieces = [{"role": "system", "content": SYSTEM}], [], 0
    for question in QUESTIONS:
        said.append({"role": "user", "content": question})
        answer, num = (
            responses(said, is_streamed) if api == "responses" else chat(MODELS[api], said, is_streamed)
        )
        answers.append(answer)
        num_pieces += num
    return answers, num_pieces


run_all(talk)
