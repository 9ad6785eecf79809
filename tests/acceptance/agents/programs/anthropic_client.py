"""The `anthropic` client with its own tool runner."""

import anthropic
from given_runs import QUESTIONS, SYSTEM, run_all, weather


def ask(client, messages, is_streamed):
    """Let the tool runner answer. Return the text and the number of pieces; `messages` grows by all turns."""
    num_pieces = 0
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5",
        max_tokens=500,
        system=SYSTEM,
        tools=[anthropic.beta_tool(weather)],
        messages=messages,
        stream=is_streamed,
    )
    for turn in runner:
        if is_streamed:
            num_pieces += sum(event.type == "text" for event in turn)
        message = turn.get_final_message() if is_streamed else turn
        messages.append({"role": "assistant", "content": message.content})
        results = runner.generate_tool_call_response()
        if results is not None:
            messages.append(results)
    return message.content[-1].text, num_pieces


def talk(api, is_streamed):
    messages, answers, num_pieces = [], [], 0
    with anthropic.Anthropic() as client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            answer, num = ask(client, messages, is_streamed)
            answers.append(answer)
            num_pieces += num
    return answers, num_pieces


run_all(talk)
