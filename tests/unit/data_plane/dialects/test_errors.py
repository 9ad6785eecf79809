"""The words and the status by which the clients of each API know an error."""

import json
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seamlessflow.data_plane.dialects.catalog import DIALECTS
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.serving.planning import turn_budget
from seamlessflow.data_plane.turns.rendering.helper import _reply
from seamlessflow.data_plane.turns.rendering.prompt import PromptRequest
from tests.fixtures.answered_turns import tiny_model_text

BY_PATH = {dialect.path: dialect for dialect in DIALECTS}
MAX_MODEL_LEN = 100


def too_long(num_tokens: int) -> ApiError:
    """Return the error for a prompt of this length."""
    model = SimpleNamespace(max_model_len=MAX_MODEL_LEN)
    spec = SimpleNamespace(model=model, rollout=SimpleNamespace(max_tokens_per_turn=10))
    session = SimpleNamespace(job=SimpleNamespace(spec=spec))
    with pytest.raises(ApiError) as refused:
        turn_budget(cast(Any, session), cast(Any, SimpleNamespace(num_prompt_tokens=num_tokens)), None)
    return refused.value


@pytest.mark.parametrize(
    "path,param,words",
    [
        ("/v1/chat/completions", "messages", "maximum context length is 100 tokens. However, your messages"),
        (
            "/v1/completions",
            "prompt",
            "maximum context length is 100 tokens, however you requested 120 tokens",
        ),
        ("/v1/responses", "input", "Your input exceeds the context window of this model."),
        ("/v1/messages", "messages", "prompt is too long: 120 tokens > 100 maximum"),
    ],
)
def test_a_full_context_has_the_words_of_each_api(path: str, param: str, words: str) -> None:
    error = json.loads(BY_PATH[path].error(too_long(120)))["error"]
    assert words in error["message"]
    assert "120 tokens" in error["message"]
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")


def test_a_prompt_that_leaves_no_token_for_the_answer_is_above_the_maximum() -> None:
    error = json.loads(BY_PATH["/v1/messages"].error(too_long(MAX_MODEL_LEN)))["error"]
    assert error["message"] == "prompt is too long: 100 tokens > 99 maximum"


def test_a_text_too_long_to_be_tokenised_is_a_full_context_too() -> None:
    num_chars = 1024 * (MAX_MODEL_LEN + 1)
    request = PromptRequest("", (), None, {}, (), max_tokens=MAX_MODEL_LEN, text="x" * num_chars)
    reply = _reply(request, cast(Any, lambda *_: tiny_model_text()))
    assert (reply.outcome, reply.num_tokens) == ("text_too_long", (MAX_MODEL_LEN + 1, MAX_MODEL_LEN))


@pytest.mark.parametrize("path", BY_PATH)
@pytest.mark.parametrize(
    "status,kind,anthropic_kind",
    [
        (HTTPStatus.UNAUTHORIZED, "authentication_error", "authentication_error"),
        (HTTPStatus.NOT_FOUND, "invalid_request_error", "not_found_error"),
        (HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error", "rate_limit_error"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "server_error", "overloaded_error"),
    ],
)
def test_each_api_has_its_kinds_of_errors(
    path: str, status: HTTPStatus, kind: str, anthropic_kind: str
) -> None:
    dialect, error = BY_PATH[path], ApiError(status, "No.")
    is_anthropic = path == "/v1/messages"
    assert json.loads(dialect.error(error))["error"]["type"] == (anthropic_kind if is_anthropic else kind)
    is_overloaded = is_anthropic and status is HTTPStatus.SERVICE_UNAVAILABLE
    assert dialect.status(error) == (529 if is_overloaded else status)
