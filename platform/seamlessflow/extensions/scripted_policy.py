"""A policy for tests of environments: it answers chat completions on a real socket with a function, without a model.

`reply` takes the conversation that the agent sends and returns the answer. It needs no gateway and no database.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from aiohttp import web

from seamlessflow.core.environment.episodes import PolicyEndpoint

Reply = Callable[[list[dict[str, Any]]], Mapping[str, Any] | str]
"""Takes the messages so far; returns the assistant's next message, or its text."""


class PolicyRefusal(Exception):
    """Raised by a reply to refuse the request with status 400, which no client retries."""


@contextlib.asynccontextmanager
async def scripted_policy(reply: Reply) -> AsyncIterator[PolicyEndpoint]:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        try:
            answer = reply(body["messages"])
        except PolicyRefusal as error:
            return web.json_response(
                {"error": {"message": str(error), "type": "invalid_request_error"}}, status=400
            )
        message = {"role": "assistant", "content": answer} if isinstance(answer, str) else dict(answer)
        return web.json_response(_completion(message, str(body.get("model", ""))))

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield PolicyEndpoint(base_url=f"http://{host}:{port}/v1", api_key="scripted")
    finally:
        await runner.cleanup()


def _completion(message: Mapping[str, Any], model: str) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": dict(message), "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
