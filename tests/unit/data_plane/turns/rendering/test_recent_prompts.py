"""Equal beginnings are rendered once, and nobody gets a prompt that its own request would not have given."""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
import pytest

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.chat_template import ChatTemplate
from seamlessflow.data_plane.turns.rendering.prompt import (
    AskedPrompt,
    Prompt,
    PromptRequest,
    asked_prompt,
)
from seamlessflow.data_plane.turns.rendering.recent_prompts import ENTRY_BYTES, RecentPrompts


@dataclass(slots=True)
class Helper:
    """Makes a prompt of each body once it may, or fails."""

    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    num_asked: int = 0
    num_cancelled: int = 0

    async def make(self, asked: AskedPrompt) -> Prompt:
        self.num_asked += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return Prompt(None, asked.body, False)


def asked(content: str, **fields: object) -> AskedPrompt:
    request = PromptRequest("m", [{"role": "user", "content": content}], None, {}, (), 100)
    return asked_prompt(msgspec.structs.replace(request, **fields))


@pytest.fixture
def helper() -> Helper:
    return Helper()


async def test_equal_requests_share_one_prompt_while_it_is_made_and_later(helper: Helper) -> None:
    recent = RecentPrompts()
    both = [asyncio.create_task(recent.prompt(asked("1"), helper.make, is_lasting=True)) for _ in range(2)]
    await asyncio.sleep(0)
    helper.may_end.set()
    first, second = await asyncio.gather(*both)
    assert first is second
    assert await recent.prompt(asked("1"), helper.make, is_lasting=True) is first
    assert helper.num_asked == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "2"}]},
        {"messages": [{"role": "system", "content": "1"}]},
        {"model": "other"},
        {"tools": [{"type": "function"}]},
        {"arguments": {"enable_thinking": False}},
        {"max_tokens": 99},
        {"family": ModelFamily.GLM},
        {"text": "1"},
        {"retains_reasoning": True},
    ],
    ids=lambda fields: ", ".join(fields),
)
async def test_requests_that_differ_anywhere_have_prompts_of_their_own(
    helper: Helper, fields: dict[str, object]
) -> None:
    recent = RecentPrompts()
    helper.may_end.set()
    first = await recent.prompt(asked("1"), helper.make, is_lasting=True)
    other = await recent.prompt(asked("1", **fields), helper.make, is_lasting=True)
    assert other.new_ids != first.new_ids
    assert helper.num_asked == 2


async def test_a_client_that_leaves_takes_the_prompt_from_nobody(helper: Helper) -> None:
    recent = RecentPrompts()
    left, stays = (
        asyncio.create_task(recent.prompt(asked("1"), helper.make, is_lasting=True)) for _ in range(2)
    )
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    helper.may_end.set()
    assert (await stays).new_ids == asked("1").body
    assert (helper.num_asked, helper.num_cancelled) == (1, 0)


async def test_a_prompt_that_nobody_waits_for_is_given_up_and_made_again(helper: Helper) -> None:
    recent = RecentPrompts()
    alone = asyncio.create_task(recent.prompt(asked("1"), helper.make, is_lasting=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    await asyncio.sleep(0)
    assert helper.num_cancelled == 1
    helper.may_end.set()
    await recent.prompt(asked("1"), helper.make, is_lasting=True)
    assert helper.num_asked == 2


async def test_a_failure_reaches_all_who_wait_and_is_not_remembered(helper: Helper) -> None:
    recent, helper.error = RecentPrompts(), ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "too slow")
    helper.may_end.set()
    both = [recent.prompt(asked("1"), helper.make, is_lasting=True) for _ in range(2)]
    assert await asyncio.gather(*both, return_exceptions=True) == [helper.error] * 2
    helper.error = None
    assert (await recent.prompt(asked("1"), helper.make, is_lasting=True)).new_ids == asked("1").body
    assert helper.num_asked == 2


async def test_a_template_that_asks_for_the_time_is_rendered_at_each_time(helper: Helper) -> None:
    recent = RecentPrompts()
    helper.may_end.set()
    for _ in range(2):
        await recent.prompt(asked("1"), helper.make, is_lasting=False)
    assert helper.num_asked == 2
    assert not ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}).is_constant
    assert not ChatTemplate("{{ [1, 2] | random }}", {}).is_constant
    assert ChatTemplate("{{ messages[0].content }}", {}).is_constant


async def test_the_oldest_prompts_leave_when_memory_is_used_up(helper: Helper) -> None:
    helper.may_end.set()
    recent = RecentPrompts(max_bytes=2 * (ENTRY_BYTES + len(asked("1").body)))
    for content in ("1", "2", "1", "3", "1"):
        await recent.prompt(asked(content), helper.make, is_lasting=True)
    assert helper.num_asked == 3
    await recent.prompt(asked("2"), helper.make, is_lasting=True)
    assert helper.num_asked == 4
    huge = asked("x" * 10_000)
    for _ in range(2):
        await recent.prompt(huge, helper.make, is_lasting=True)
    assert helper.num_asked == 6
