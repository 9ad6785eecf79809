"""Compares what a machine's processes spend on HTTP with the framework that they could use instead.

The front stands before a canned engine, beside a proxy of aiohttp that only passes bytes. Both get
the same requests: whole answers, and streams whose chunks come one by one, so that each costs a
read and a write. The client of the built-in environments asks the canned engine for chat
completions, beside a session of aiohttp. Only the processor time of the process in question counts.
"""

import asyncio
import functools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.runtime.http_connections import HttpConnections, address_of
from tests.benchmarks.canned_engine import NUM_TOKENS
from tests.benchmarks.front_process import JOB, TOKEN, VERSION
from tests.benchmarks.measuring import Program, Samples, cpu_s, interleaved, program_running
from tests.benchmarks.report import Row
from tests.fixtures.repository import ROOT

PROXY = "pass-through proxy (aiohttp)"
CLIENT = "a session of aiohttp"
NUM_TOGETHER = 16
NUM_WHOLE, NUM_STREAMS = 8000, 160
STEP_S = 0.004  # between two chunks of a stream
NUM_CALLS = 8000
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class _Bench:
    engine: Program
    connections: HttpConnections

    async def load(self, program: Program, *, is_streamed: bool) -> float:
        """Return the microseconds of processor time that an answer costs the program."""
        num_answers = NUM_STREAMS if is_streamed else NUM_WHOLE
        await self._ask(self.engine, f"/pace/{STEP_S}", b"", 1)
        path, body = "/inference/v1/generate", _body(is_streamed=is_streamed)
        await self._ask(program, path, body, NUM_TOGETHER)
        before_s = cpu_s(program.pid)
        each = num_answers // NUM_TOGETHER
        await asyncio.gather(*(self._ask(program, path, body, each) for _ in range(NUM_TOGETHER)))
        return (cpu_s(program.pid) - before_s) / (each * NUM_TOGETHER) * 1e6

    async def passing(self, program: Program) -> dict[str, float]:
        whole_us = await self.load(program, is_streamed=False)
        stream_us = await self.load(program, is_streamed=True)
        return {"whole_us": whole_us, "chunk_us": stream_us / NUM_TOKENS}

    async def calls(self, client: str) -> dict[str, float]:
        command = (sys.executable, "-m", "tests.benchmarks.policy_calls")
        arguments = (client, self.engine.base_url, str(NUM_CALLS))
        run = functools.partial(
            subprocess.run, (*command, *arguments), cwd=ROOT, capture_output=True, text=True, check=True
        )
        return {"call_us": float((await asyncio.to_thread(run)).stdout)}

    async def _ask(self, program: Program, path: str, body: bytes, num_times: int) -> None:
        address = address_of(program.base_url)
        message = _message(path, body)
        for _ in range(num_times):
            connection = await self.connections.take(address)
            connection.ask(message, silence_s=SILENCE_S)
            answer = await connection.read_all()
            assert connection.status == 200, answer
            self.connections.give_back(connection)


def _body(*, is_streamed: bool) -> bytes:
    return b'{"token_ids":[%b],%b}' % (b"101," * 199 + b"1", b'"stream":true' if is_streamed else b'"n":1')


def _message(path: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: engine\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"X-SeamlessFlow-Job: {JOB}\r\nX-SeamlessFlow-Policy-Version: {VERSION}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def measure() -> Sequence[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        socket_path = str(folder / "engine.sock")
        engine = stack.enter_context(program_running("tests.benchmarks.canned_engine", socket_path))
        front = stack.enter_context(program_running("tests.benchmarks.front_process", socket_path))
        proxy = stack.enter_context(program_running("tests.benchmarks.pass_through", engine.base_url))
        connections = HttpConnections(peer="the program", idle_s=1.0)
        stack.callback(connections.close)
        bench = _Bench(engine, connections)
        passing = await interleaved(
            {"front": lambda: bench.passing(front), "proxy": lambda: bench.passing(proxy)}
        )
        calls = await interleaved(
            {"ours": lambda: bench.calls("ours"), "aiohttp": lambda: bench.calls("aiohttp")}
        )
    return _rows(passing, calls)


def _rows(passing: Samples, calls: Samples) -> list[Row]:
    front, proxy = passing["front"], passing["proxy"]
    return [
        Row("front: a whole answer", "µs", front["whole_us"], PROXY, proxy["whole_us"]),
        Row("front: a streamed chunk", "µs", front["chunk_us"], PROXY, proxy["chunk_us"]),
        Row("agents: a call", "µs", calls["ours"]["call_us"], CLIENT, calls["aiohttp"]["call_us"]),
    ]
