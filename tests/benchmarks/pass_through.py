"""The least that a proxy can do, as the gateway's baseline: `python -m
tests.benchmarks.pass_through ENGINE_URL`.

A request's body goes to the engine unchanged, and the answer comes back unchanged: nothing is
rendered, matched or stored. It serves on a loopback port, which it prints.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web

STREAM_TYPE = "text/event-stream"
ENGINE = web.AppKey("ENGINE", str)
HTTP = web.AppKey("HTTP", aiohttp.ClientSession)


async def _pass(request: web.Request) -> web.StreamResponse:
    target = f"{request.app[ENGINE]}/inference/v1/generate"
    async with request.app[HTTP].post(target, data=await request.read()) as answer:
        if answer.content_type != STREAM_TYPE:
            return web.Response(body=await answer.read(), content_type=answer.content_type)
        response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE})
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        return response


async def _serve(engine: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        app = web.Application()
        app[ENGINE], app[HTTP] = engine, http
        app.add_routes([web.post("/{path:.*}", _pass)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
