"""Synthetic chat transcripts, which the warm start imitates and on which the tokenizer is trained.

There are two stages. *Practice* shows only right answers: the model learns the format and to copy numbers. *Mixture*
shows right tool use, guesses without the tool, and calls with a garbled expression (followed by its consistent result).
So every skill that reinforcement has to select is present, and the sampled reward starts near 0.2.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL, calculate
from seamlessflow_workers.example.tasks import ExampleEnvironment, ExampleTask, iter_tasks

TEMPLATE_PATH = Path(__file__).with_name("chat_template.jinja")
RIGHT_USE_SHARE = 0.20
GUESS_SHARE = 0.45
GARBLED_DIGIT_SHARE = 0.3
RIGHT_SUM_SHARE = 0.25  # arithmetic: the other answers are off by up to nine

Message = Mapping[str, Any]


class Stage(StrEnum):
    PRACTICE = "practice"
    MIXTURE = "mixture"


@dataclass(frozen=True, slots=True)
class Transcript:
    messages: Sequence[Message]
    tools: Sequence[object] | None


class ChatTemplate:
    """Renders messages as `transformers` does: in sandboxed Jinja, with JSON unescaped and in the given key order."""

    def __init__(self) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        self._template = environment.from_string(TEMPLATE_PATH.read_text())

    def render(self, transcript: Transcript, *, is_generation_prompt_added: bool = False) -> str:
        return self._template.render(
            messages=transcript.messages,
            tools=transcript.tools,
            add_generation_prompt=is_generation_prompt_added,
        )


def iter_transcripts(
    environment: ExampleEnvironment, stage: Stage, *, num_transcripts: int, seed: int
) -> Iterator[Transcript]:
    """Yield transcripts that depend only on (environment, stage, seed)."""
    chance = random.Random(f"{environment}/{stage}/{seed}")
    tasks = iter_tasks(environment, num_tasks=num_transcripts, seed=chance.randrange(2**31, 2**32))
    for task in tasks:
        if environment is ExampleEnvironment.CALCULATOR:
            yield Transcript(messages=_calculator_messages(task, stage, chance), tools=[CALC_TOOL])
        else:
            yield Transcript(messages=_arithmetic_messages(task, stage, chance), tools=None)


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _calculator_messages(task: ExampleTask, stage: Stage, chance: random.Random) -> list[Message]:
    question = {"role": "user", "content": task.question}
    kind = 0.0 if stage is Stage.PRACTICE else chance.random()
    if RIGHT_USE_SHARE <= kind < RIGHT_USE_SHARE + GUESS_SHARE:
        return [question, {"role": "assistant", "content": str(chance.randrange(10**5, 10**6))}]
    expression = task.question.removeprefix("What is ").removesuffix("?")
    if kind >= RIGHT_USE_SHARE + GUESS_SHARE:
        expression = "".join(_garbled(character, chance) for character in expression)
    result = calculate(expression)
    answer = [{"role": "tool", "content": result}, {"role": "assistant", "content": result}]
    return [question, _call(expression), *answer]


def _arithmetic_messages(task: ExampleTask, stage: Stage, chance: random.Random) -> list[Message]:
    is_right = stage is Stage.PRACTICE or chance.random() < RIGHT_SUM_SHARE
    answer = task.answer if is_right else str(max(0, int(task.answer) + chance.randrange(-9, 10)))
    return [{"role": "user", "content": task.question}, {"role": "assistant", "content": answer}]


def _garbled(character: str, chance: random.Random) -> str:
    is_replaced = character.isdigit() and chance.random() < GARBLED_DIGIT_SHARE
    return chance.choice("0123456789") if is_replaced else character


def _call(expression: str) -> Message:
    function = {"name": "calc", "arguments": f'{{"expression": "{expression}"}}'}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
