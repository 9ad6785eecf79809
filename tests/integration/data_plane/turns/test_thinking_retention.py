"""A job says whether reasoning stays in its branch when the template drops it after the next question."""

import functools
from typing import Any

import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

# Reasoning is shown in the last message only.
DROPPING = TEMPLATE.replace(
    "{{ message.content }}",
    "{% if loop.last and message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content }}",
)


@pytest.mark.parametrize("retention,drift", [("template", "realign"), ("all", "clean")])
async def test_reasoning_is_retained_as_the_job_says(
    gateway_world: GatewayWorld, retention: str, drift: str
) -> None:
    world = gateway_world
    world.write_model = functools.partial(write_tiny_text, template=DROPPING)
    await world.start_engines(
        lambda prompt: "<think>hm</think>Yes.<|im_end|>", model={"thinking_retention": retention}
    )
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    messages: list[Any] = [{"role": "user", "content": "1 < 2?"}]
    said = (await world.chat(key, messages))["choices"][0]["message"]
    assert (said["reasoning_content"], said["content"]) == ("hm", "Yes.")
    messages += [said, {"role": "user", "content": "Sure?"}]
    await world.chat(key, messages)
    rows = world.sql("SELECT drift FROM trajectory_node WHERE drift IS NOT NULL ORDER BY node_index")
    assert [row[0] for row in rows] == ["clean", drift]
