"""Clients hand answers back in other words; a gateway that reads the session from its rows joins them just the same."""

from typing import Any

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.resent_answers import CODE_STOP, TOOLS, smolagents_list

CODE = "print(12 + 34)"
CODED = f"It's a sum.\n<code>\n{CODE}\n{CODE_STOP}"
CALLED = '<think>hm</think>Let me see.<tool_call>{"name": "calc", "arguments": {}}</tool_call>'
JOINS = "SELECT drift FROM trajectory_node WHERE session_id = %s AND drift IS NOT NULL ORDER BY node_index"


def answer(prompt: str) -> str:
    return (CODED if "code" in prompt else CALLED) + "<|im_end|>"


def coded(said: Any) -> dict[str, Any]:
    """Return an answer as smolagents' CodeAgent hands it back."""
    listed = smolagents_list([("call_2", "python_interpreter", CODE)])
    return {"role": "assistant", "content": f"{said['content']}{CODE_STOP}\n{listed}"}


def bare(said: Any) -> dict[str, Any]:
    """Return an answer as crewai hands it back: calls alone, without arguments that it found empty."""
    (call,) = said["tool_calls"]
    function = {**call["function"], "arguments": ""}
    return {"role": "assistant", "content": None, "tool_calls": [{**call, "function": function}]}


async def test_answers_in_other_words_join_before_and_after_a_restart(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(answer)
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    code, calls = group["sessions"]
    talks: list[tuple[Any, list[Any], dict[str, Any]]] = [
        (code, [{"role": "user", "content": "Write code."}], {"stop": ["Observation:", CODE_STOP]}),
        (calls, [{"role": "user", "content": "12+34?"}], {"tools": TOOLS}),
    ]
    for turn in range(4):
        if turn == 2:
            world.kill_gateway()
            await world.start_gateway()
        for session, messages, fields in talks:
            said = (await world.chat(session["api_key"], messages, **fields))["choices"][0]["message"]
            if session is code:
                messages += [coded(said), {"role": "user", "content": "Observation:\n46"}]
            else:
                call_id = said["tool_calls"][0]["id"]
                messages += [bare(said), {"role": "tool", "tool_call_id": call_id, "content": "46"}]
    for session, messages, fields in talks:
        drifts = [row[0] for row in world.sql(JOINS, [session["session_id"]])]
        assert drifts == ["clean"] * 4
        edited = {**messages[1], "content": "Something else."}
        await world.chat(session["api_key"], [messages[0], edited, messages[2]], **fields)
        assert world.sql(JOINS, [session["session_id"]])[-1] == ("fork",)
