"""Google's `google-genai` client by itself: a chat whose tools it calls, over the Gemini API."""

from given_runs import QUESTIONS, SYSTEM, run_all, weather
from google import genai
from google.genai import types


def talk(api, is_streamed):
    config = types.GenerateContentConfig(system_instruction=SYSTEM, tools=[weather])
    answers, num_pieces = [], 0
    with genai.Client() as client:
        chat = client.chats.create(model="gemini-3-flash", config=config)
        for question in QUESTIONS:
            if is_streamed:
                pieces = [part.text for part in chat.send_message_stream(question) if part.text]
                num_pieces += len(pieces)
                answers.append("".join(pieces).removeprefix("I look first."))
            else:
                answers.append(chat.send_message(question).text)
    return answers, num_pieces


run_all(talk)
