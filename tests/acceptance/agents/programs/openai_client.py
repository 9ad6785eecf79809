"""The `openai` client by itself: a loop of turns with tools, over Chat Completions or Responses."""

import json

import openai
from given_runs import QUESTIONS, SCHEMA, SYSTEM, run_all, weather

TOOL = {"name": "weather", "description": "Temperature of a city.", "parameters": SCHEMA}


def chat(client, messages, is_streamed):
    """Ask for answers until one has no calls. Return its text and the number of pieces that came."""
    num_pieces = 0
    asked = {"model": "gpt-5", "messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    while True:
        if is_streamed:
            with client.chat.completions.stream(**asked) as stream:
                num_pieces += sum(event.type == "content.delta" for event in stream)
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            return message.content, num_pieces


def responses(client, items, is_streamed):
    num_pieces = 0
    asked = {"model": "gpt-5", "input": items, "tools": [{"type": "function", "strict": True, **TOOL}]}
    while True:
        if is_streamed:
            with client.responses.stream(**asked) as stream:
                num_pieces += sum(event.type == "response.output_text.delta" for event in stream)
                response = stream.get_final_response()
        else:
            response = client.responses.create(**asked)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        for call in calls:
            result = weather(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        if not calls:
            return response.output_text, num_pieces


def talk(api, is_streamed):
    said = [{"role": "system", "content": SYSTEM}]
    answers, num_pieces = [], 0
    with openai.OpenAI() as client:
        for question in QUESTIONS:
            said.append({"role": "user", "content": question})
            answer, num = (chat if api == "chat" else responses)(client, said, is_streamed)
            answers.append(answer)
            num_pieces += num
    return answers, num_pieces


run_all(talk)
