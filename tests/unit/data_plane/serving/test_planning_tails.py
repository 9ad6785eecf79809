"""Of a long conversation, a helper gets only the last messages once their kind is proven."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from seamlessflow.data_plane.serving.planning import TAILS_ABOVE_BYTES, TurnPlanner
from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import (
    AskedPrompt,
    Cut,
    Prompt,
    PromptRequest,
    TailNotEnough,
    asked_prompt,
    prompt_make,
)
from tests.fixtures.tiny_text import write_tiny_text


@dataclass(slots=True)
class Helpers:
    """Makes prompts in this process."""

    text: ModelText
    needs_all: bool = False
    sizes: list[int] = field(default_factory=list)  # messages of each request

    async def prompt(self, job: Hashable, asked: AskedPrompt) -> Prompt:
        request = msgspec.json.decode(asked.body, type=PromptRequest)
        self.sizes.append(len(request.messages))
        if request.is_tail and self.needs_all:
            raise TailNotEnough
        return prompt_make(self.text, request)


@pytest.fixture
def helpers(tmp_path: Path) -> Helpers:
    return Helpers(model_text_load(write_tiny_text(tmp_path / "model")))


def conversation(num_chars: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "12 + 34 " * (num_chars // 8)},
        {"role": "assistant", "content": "46"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "And 1 + 1?"},
    ]


async def planned(helpers: Helpers, *, num_chars: int, num_turns: int, **fields: Any) -> list[Prompt]:
    job: Any = SimpleNamespace(job_id=uuid4(), text=helpers.text, proven_tails=set())
    planner = TurnPlanner(helpers.prompt)
    messages = template_messages(conversation(num_chars))
    cuts = [Cut(4, "<|im_end|>"), Cut(2, "<|im_end|>")]
    request = PromptRequest("", messages, None, {}, cuts, 100_000, **fields)
    return [await planner._prompt(job, request, asked_prompt(request)) for _ in range(num_turns)]


async def test_a_helper_gets_the_tails_of_long_turns_once_it_has_made_one(helpers: Helpers) -> None:
    first, *others = await planned(helpers, num_chars=TAILS_ABOVE_BYTES, num_turns=3)
    assert helpers.sizes == [5, 3, 3]  # a message in place of all others, the answer, and the question
    assert others == [first, first]
    assert (first.cut, first.is_of_tail) == (0, True)


async def test_short_turns_and_those_that_keep_reasoning_are_sent_whole(helpers: Helpers) -> None:
    await planned(helpers, num_chars=TAILS_ABOVE_BYTES // 2, num_turns=2)
    await planned(helpers, num_chars=TAILS_ABOVE_BYTES, num_turns=2, retains_reasoning=True)
    assert helpers.sizes == [5] * 4


async def test_all_messages_follow_if_the_tail_is_not_enough(helpers: Helpers) -> None:
    helpers.needs_all = True
    first, second = await planned(helpers, num_chars=TAILS_ABOVE_BYTES, num_turns=2)
    assert helpers.sizes == [5, 3, 5]
    assert first == second
