"""The card of the session's model, and refusals of routes and methods that do not exist, in the form of each API."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

MAX_MODEL_LEN = 512
OPENAI_KINDS = {404: "invalid_request_error", 405: "invalid_request_error", 401: "authentication_error"}
ANTHROPIC_KINDS = {404: "not_found_error", 405: "invalid_request_error", 401: "authentication_error"}


@pytest.fixture
async def key(gateway_world: GatewayWorld) -> str:
    gateway_world.make_job()
    gateway_world.sql("UPDATE jobs_job SET name = 'my org/tiny model'")
    await gateway_world.start_gateway()
    (group,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
    session_key: str = group["sessions"][0]["api_key"]
    return session_key


@pytest.fixture
async def of_openai(gateway_world: GatewayWorld, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = gateway_world.base_url + "/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
async def of_anthropic(gateway_world: GatewayWorld, key: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base_url = gateway_world.base_url
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=key, max_retries=0) as client:
        yield client


async def test_openais_client_finds_the_model_with_the_length_of_its_context(
    of_openai: openai.AsyncOpenAI,
) -> None:
    (listed,) = (await of_openai.models.list()).data
    found: Any = await of_openai.models.retrieve(listed.id)
    with pytest.raises(openai.NotFoundError) as refused:
        await of_openai.models.retrieve("gpt-5")

    assert (found.id, found.object) == ("my org/tiny model", "model")
    assert found.max_model_len == MAX_MODEL_LEN
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert refused.value.type == "invalid_request_error"


async def test_anthropics_client_finds_the_model_in_its_form(
    of_anthropic: anthropic.AsyncAnthropic, gateway_world: GatewayWorld, key: str
) -> None:
    page = await of_anthropic.models.list()
    (listed,) = page.data
    found = await of_anthropic.models.retrieve(listed.id)
    with pytest.raises(anthropic.NotFoundError) as refused:
        await of_anthropic.models.retrieve("claude")
    async with anthropic.AsyncAnthropic(
        base_url=gateway_world.base_url, auth_token=key, api_key=None, max_retries=0
    ) as with_token:
        (of_token,) = (await with_token.models.list()).data

    assert (page.has_more, page.first_id, page.last_id) == (False, listed.id, listed.id)
    assert (found.id, found.type, found.max_input_tokens) == ("my org/tiny model", "model", MAX_MODEL_LEN)
    assert of_token.display_name == listed.display_name == "my org/tiny model"
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")


@pytest.mark.parametrize(
    "method,path,status",
    [
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/v1/chat/completions", 404),
        ("GET", "/v1/files/f", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
    ],
)
async def test_what_does_not_exist_is_refused_in_the_form_of_each_api(
    gateway_world: GatewayWorld, key: str, method: str, path: str, status: int
) -> None:
    """On a path of its own, an API has its form whatever the headers say."""
    refused = await asked(gateway_world, method, path, {"Authorization": f"Bearer {key}"})
    assert refused == (status, OPENAI_KINDS[status], None)
    if path not in ("/v1/chat/completions", "/v1/completions"):
        refused = await asked(gateway_world, method, path, {"x-api-key": key})
        assert refused == (status, ANTHROPIC_KINDS[status], "error")


async def test_anthropics_paths_have_its_form_whatever_the_headers(
    gateway_world: GatewayWorld, key: str
) -> None:
    for method, path, status in (
        ("GET", "/v1/messages", 405),
        ("GET", "/v1/messages/count_tokens", 405),
        ("POST", "/v1/messages/batches", 404),
    ):
        refused = await asked(gateway_world, method, path, {"Authorization": f"Bearer {key}"})
        assert refused == (status, ANTHROPIC_KINDS[status], "error"), path
    assert await asked(gateway_world, "GET", "/v1/models", {"x-api-key": "sfk_none"}) == (
        401, "authentication_error", "error",
    )  # fmt: skip


async def asked(
    world: GatewayWorld, method: str, path: str, headers: dict[str, str]
) -> tuple[int, str | None, str | None]:
    """Return the status, the kind of the error, and the kind of the body."""
    assert world.http is not None
    async with world.http.request(method, world.base_url + path, headers=headers) as response:
        assert response.content_type == "application/json", await response.text()
        body = await response.json()
        assert path in body["error"]["message"] or response.status == 401
        return response.status, body["error"]["type"], body.get("type")
