"""A policy that plays written parts, so that a test knows what a client must do with each answer.

A question names its part, as in "«weather» How warm is it?". The policy gives the answers of the part one after
another, and the last one again and again.
"""

import json
from typing import Any

from tests.fakes.scripted_engine import HEADER

END = "<|im_end|>"


def calls(*asked: tuple[str, dict[str, Any]]) -> str:
    """Return calls of tools, in parallel if there are several, as Hermes-style models write them."""
    bodies = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in asked)
    return "".join(f"<tool_call>{body}</tool_call>" for body in bodies)


def code(*lines: str) -> str:
    """Return a block of code as smolagents asks for it."""
    return "\n".join(["", "<code>", *lines, "</code>"])


THOUGHT = "<think>I look.</think>I look first."
WEATHER_ANSWER = "Rome is the warmest, with 21.5 degrees."
NOTES_ANSWER = "The notes say hello 42."
PARTS = {
    "weather": [
        THOUGHT + calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})),
        calls(("weather", {"city": "Bern"})),
        WEATHER_ANSWER,
    ],
    "codex": [
        THOUGHT + calls(("exec_command", {"cmd": "cat notes.txt"}), ("exec_command", {"cmd": "ls"})),
        calls(("exec_command", {"cmd": "wc notes.txt"})),
        NOTES_ANSWER,
    ],
    "pi": [
        THOUGHT + calls(("read", {"path": "notes.txt"}), ("bash", {"command": "ls"})),
        calls(("bash", {"command": "wc notes.txt"})),
        NOTES_ANSWER,
    ],
    "gemini": [
        THOUGHT + calls(("read_file", {"file_path": "notes.txt"}), ("list_directory", {"dir_path": "."})),
        calls(("run_shell_command", {"command": "wc notes.txt"})),
        NOTES_ANSWER,
    ],
}


PARTS |= {
    "code": [
        THOUGHT + code("for city in ('Oslo', 'Rome'):", "    print(city, temperature(city))"),
        code("print(temperature('Bern'))"),
        code(f"final_answer('{WEATHER_ANSWER}')"),
    ],
    "calls": [
        THOUGHT + calls(("temperature", {"city": "Oslo"}), ("temperature", {"city": "Rome"})),
        calls(("temperature", {"city": "Bern"})),
        calls(("final_answer", {"answer": WEATHER_ANSWER})),
    ],
}


def play(prompt: str) -> str:
    """Return the next answer of the part that the prompt names."""
    for name, answers in PARTS.items():
        _, found, rest = prompt.partition(f"«{name}»")
        if found:
            return answers[min(rest.count(HEADER), len(answers)) - 1] + END
    raise ValueError(f"no part is named in {prompt[-200:]!r}")
