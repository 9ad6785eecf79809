"""Every faulty request gets a 4xx in OpenAI's format, and nobody reaches another project's data."""

import hashlib
import io
import json
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

USER: dict[str, Any] = {"role": "user", "content": "12+34?"}
DEEP = 60_000
MAX_BODY_BYTES = 32 << 20
CHAT = "/v1/chat/completions"
BATCH: dict[str, Any] = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 0.0}
BAD_RAW = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"messages": "x', b"[" * DEEP, b'{"messages":' * DEEP,
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b'{"messages": [{"role": "user", "content": "\xff"}]}',
    b'{"messages": [{"role": "user", "content": "a"}], "tools": ' + b"[" * DEEP,
    b'{"temperature": NaN, "messages": [{"role": "user", "content": "a"}]}',
]  # fmt: skip
ERROR_TYPES = {401: "authentication_error", 403: "permission_error"}
CALL: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BAD_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages"),
    ({"messages": [{}]}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages"),
    ({"messages": [{"role": {"a": 1}, "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages"),
    ({"messages": [{"role": "user", "content": {"text": "x"}}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": "f"}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [7]}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [{"function": "f"}]}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": {"a": CALL}}]}, "messages"),
    ({"n": 0}, "n"), ({"n": -1}, "n"), ({"n": 1000}, "n"), ({"n": "2"}, "n"), ({"n": 1.5}, "n"), ({"n": 10**30}, "n"),
    ({"stop": [str(i) for i in range(100)]}, "stop"), ({"stop": ""}, "stop"), ({"stop": [1]}, "stop"),
    ({"stop": {"a": 1}}, "stop"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -5}, "max_tokens"), ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"), ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"top_logprobs": 50}, "top_logprobs"), ({"logprobs": "yes"}, "logprobs"), ({"stream": "yes"}, "stream"),
    ({"stream_options": [1]}, "stream_options"), ({"temperature": "hot"}, "temperature"), ({"seed": 7.5}, "seed"),
    ({"logit_bias": {"1": 500}}, "logit_bias"), ({"response_format": {"type": "xml"}}, "response_format"),
    ({"tools": "f"}, "tools"), ({"tools": [7]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"), ({"model": 7}, "model"),
    ({"chat_template_kwargs": "x"}, "chat_template_kwargs"),
    ({"temperature": -1}, "temperature"), ({"temperature": 2.5}, "temperature"), ({"top_p": 1e308}, "top_p"),
    ({"top_k": -(2**62)}, "top_k"), ({"min_p": -1.0}, "min_p"), ({"top_logprobs": 5}, "top_logprobs"),
]  # fmt: skip
# It may be answered or refused, but must not fail.
ODD_CHATS: list[dict[str, Any]] = [
    {"messages": [USER, {"role": "tool", "content": "46"}]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": None}]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]}]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
    {"messages": [{"role": "user", "content": "a\0b", "name": "x\0y"}]},
    {"messages": [{"role": "assistant", "content": ""}]},
    {"messages": [{"role": "system", "content": ""}, {"role": "system", "content": ""}]},
    {"messages": [USER], "tools": [{}]},
    {"messages": [USER], "tools": [{"type": "function", "function": 7}]},
    {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": [[[]]]}}]},
    {"messages": [USER], "chat_template_kwargs": {"messages": 1, "tools": 2, "add_generation_prompt": 0}},
    {"messages": [USER], "chat_template_kwargs": {"bos_token": 7, "self": 1}},
    {"messages": [USER], "top_p": 1, "top_k": 0, "min_p": 0.0, "temperature": 0, "seed": -(2**62)},
    {"messages": [USER], "user": {"a": [1]}, "metadata": 7},
]  # fmt: skip


async def session_key(world: GatewayWorld) -> str:
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=1)
    key: str = group["sessions"][0]["api_key"]
    return key


def error_of(status: int, raw: bytes) -> dict[str, Any]:
    assert 400 <= status < 500, (status, raw[:500])
    error: dict[str, Any] = json.loads(raw)["error"]
    assert error["message"]
    assert error["type"] == ERROR_TYPES.get(status, "invalid_request_error")
    return error


async def test_a_chat_that_is_none_is_refused_naming_the_parameter(gateway_world: GatewayWorld) -> None:
    key = await session_key(gateway_world)
    faults = []
    for raw in BAD_RAW:
        error_of(*await gateway_world.post(CHAT, raw, key))
    for change, param in BAD_CHATS:
        status, raw = await gateway_world.post(CHAT, {"messages": [USER]} | change, key)
        if status != 400 or not str(json.loads(raw)["error"]["param"]).startswith(param):
            faults.append((change, status, raw))
    assert faults == []
    for body in ODD_CHATS:
        status, raw = await gateway_world.post(CHAT, body, key)
        assert status == 200 or error_of(status, raw), body
    too_long = {"messages": [{"role": "user", "content": "x " * 5000}]}
    assert error_of(*await gateway_world.post(CHAT, too_long, key))["code"] == "context_length_exceeded"


async def test_a_giant_body_is_refused_without_being_read(gateway_world: GatewayWorld) -> None:
    key = await session_key(gateway_world)
    gateway_world.make_token()
    giant = b"x" * (MAX_BODY_BYTES + 1)
    for path, token in ((CHAT, key), ("/v1/sessions", gateway_world.api_token)):
        assert await status_of_giant(gateway_world, path, token, giant) == 413


async def status_of_giant(world: GatewayWorld, path: str, token: str, body: bytes) -> int:
    assert world.http is not None
    headers = {"Authorization": f"Bearer {token}"}
    async with world.http.post(world.base_url + path, data=io.BytesIO(body), headers=headers) as response:
        assert (await response.json())["error"]["message"]
        return response.status


BAD_NUMBERS = (
    '"reward": NaN',
    '"reward": 1e999',
    '"reward": -Infinity',
    '"reward": 1, "metrics": {"a": NaN}',
)


async def test_runners_and_trainers_that_send_nonsense_are_told_so(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    (group,) = await world.lease(agent, max_sessions=2)
    session = group["sessions"][0]["session_id"]
    routes: list[tuple[PhaseClaims, str, list[Any]]] = [
        (agent, "/runner/v1/groups/lease",
         [*BAD_RAW, {"max_sessions": "1"}, {"max_sessions": 1.5}, {"max_sessions": 1, "wait_s": "x"}]),
        (agent, "/runner/v1/sessions/ended",
         [*BAD_RAW, {"finishes": [{"session_id": "x"}]}, {"finishes": [{"session_id": session, "reward": "1"}]},
          *(f'{{"finishes": [{{"session_id": "{session}", {bad}}}]}}'.encode() for bad in BAD_NUMBERS)]),
        (trainer, "/trainer/v1/batches/lease",
         [*BAD_RAW, BATCH | {"applied_batch": -1}, BATCH | {"applied_batch": 2**70}, BATCH | {"durable_batch": 2**63},
          BATCH | {"policy_version": 2**64}, BATCH | {"policy_version": "1"}]),
    ]  # fmt: skip
    for claims, path, bodies in routes:
        for body in bodies:
            error_of(*await world.phase_post(claims, path, body))
    assert await world.finish_refusal(agent, str(uuid4()), reward=1)
    for reward in (1e300, -1000001):
        assert await world.finish_refusal(agent, session, reward=reward)
    for name in ("a\0b", "x" * 500):
        assert await world.finish_refusal(agent, session, reward=1, metrics={name: 1.0})
    for room in (0, -5):
        assert await world.lease(agent, max_sessions=room) == []
    await world.finish(agent, session, failure="a\0b")
    assert world.sql("SELECT reason FROM trajectory_session WHERE state = 'failed'") == [("a\ufffdb",)]


async def test_sessions_from_outside_with_odd_values_are_refused_by_name(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")
    world.make_token()
    good = {"job": show_id(IdKind.JOB, world.job_id)}
    for change, param in (
        ({"job": "x"}, "job"), ({"job": "job_\0"}, "job"), ({"job": 7}, "job"), ({"group": "a\0b"}, "group"),
        ({"group": "x" * 300}, "group"), ({"group": 7}, "group"), ({"task": {"a": "x\0y"}}, "task"),
        ({"task": {"a\0": 1}}, "task"), ({"task": [1]}, "task"),
    ):  # fmt: skip
        error = error_of(*await world.post("/v1/sessions", good | change, world.api_token))
        assert str(error["param"]).startswith(param), change
    status, raw = await world.post("/v1/sessions", good, world.api_token)
    assert status == 201
    opened = json.loads(raw)
    path = f"/v1/sessions/{opened['session']}/reward"
    for body in (
        b'{"reward": NaN}',
        b'{"reward": 1e999}',
        b'{"reward": 1000001}',
        b'{"reward": -1e300}',
        b"{}",
        b'{"reward": "1"}',
        b'{"reward": 1, "branch": -1}',
    ):
        error_of(*await world.post(path, body, world.api_token))


async def test_nobody_reaches_what_is_anothers(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")
    world.make_token()
    stranger = other_project(world)
    body = {"job": show_id(IdKind.JOB, world.job_id)}
    assert (await world.post("/v1/sessions", body, stranger))[0] == 404
    first, second = [
        json.loads((await world.post("/v1/sessions", body, world.api_token))[1]) for _ in range(2)
    ]
    for verb, content in (("reward", {"reward": 1.0}), ("close", {})):
        path = f"/v1/sessions/{first['session']}/{verb}"
        for token, status in (
            (second["api_key"], 404),
            (stranger, 404),
            ("sfs_x", 401),
            ("", 401),
            ("x\0", 400),
        ):
            answered = (await world.post(path, content, token))[0] if "\0" not in token else 400
            assert answered == status, (verb, token)
    agent, trainer = world.make_phase(Role.AGENT), world.make_phase(Role.TRAIN)
    for claims, path in ((trainer, "/runner/v1/groups/lease"), (agent, "/trainer/v1/batches/lease")):
        assert (await world.phase_post(claims, path, BATCH | {"max_sessions": 1}))[0] == 403
    stale = msgspec.structs.replace(trainer, fence=trainer.fence - 1)
    other = msgspec.structs.replace(trainer, job_id=uuid4())
    late = msgspec.structs.replace(trainer, expires_at_s=1)
    for claims, status in ((stale, 409), (other, 404), (late, 401)):
        assert (await world.phase_post(claims, "/trainer/v1/batches/lease", BATCH))[0] == status


@pytest.mark.parametrize(
    "change, status",
    [
        ("UPDATE accounts_user SET is_active = false", 401),
        ("UPDATE accounts_membership SET role = 'viewer'", 403),
        ("DELETE FROM accounts_membership", 403),
        ("UPDATE accounts_token SET revoked_at = now()", 401),
        ("UPDATE accounts_token SET scopes = '{read,submit,admin}'", 403),
    ],
)
async def test_a_token_whose_owner_may_no_longer_write_opens_no_session(
    gateway_world: GatewayWorld, change: str, status: int
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")
    world.make_token()
    body = {"job": show_id(IdKind.JOB, world.job_id)}
    assert (await world.post("/v1/sessions", body, world.api_token))[0] == 201
    world.sql(change)
    assert (await world.post("/v1/sessions", body, world.api_token))[0] == status


async def test_the_gateway_notes_the_use_of_a_token_once_a_minute(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>", environment="external")
    world.make_token()
    body = {"job": show_id(IdKind.JOB, world.job_id)}
    used = "SELECT last_used_at FROM accounts_token"
    assert (await world.post("/v1/sessions", body, world.api_token))[0] == 201
    ((first,),) = world.sql(used)
    assert first is not None
    assert (await world.post("/v1/sessions", body, world.api_token))[0] == 201
    assert world.sql(used) == [(first,)]
    world.sql("UPDATE accounts_token SET last_used_at = now() - interval '2 minutes'")
    assert (await world.post("/v1/sessions", body, world.api_token))[0] == 201
    assert world.sql(used)[0][0] >= first


def other_project(world: GatewayWorld) -> str:
    """Return a token of another project."""
    project, user, secret = uuid4(), uuid4(), "sft_a-strangers-token"
    world.insert("accounts_project", id=project, slug="q", name="q", created_at="2026-01-01")
    world.insert(
        "accounts_user", id=user, username="v", password="", is_superuser=False, is_staff=False, is_active=True,
        first_name="", last_name="", email="", date_joined="2026-01-01",
    )  # fmt: skip
    world.insert("accounts_membership", id=uuid4(), user_id=user, project_id=project, role="owner")
    world.insert(
        "accounts_token", id=uuid4(), kind="api", name="t", project_id=project, user_id=user,
        digest=hashlib.sha256(secret.encode()).hexdigest(), created_at="2026-01-01",
    )  # fmt: skip
    return secret
