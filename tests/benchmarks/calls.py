"""Compares what a model call costs the client of the built-in environments with a session of aiohttp.

Both ask a canned engine for chat completions, each in a process of its own, of which only the
processor time counts.
"""

import asyncio
import functools
import subprocess
import sys
from collections.abc import Sequence

from tests.benchmarks.measuring import interleaved, program_running
from tests.benchmarks.report import Row
from tests.fixtures.repository import ROOT

CLIENT = "a session of aiohttp"
NUM_CALLS = 8000


async def _calls(client: str, url: str) -> dict[str, float]:
    command = (sys.executable, "-m", "tests.benchmarks.policy_calls", client, url, str(NUM_CALLS))
    run = functools.partial(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {"call_us": float((await asyncio.to_thread(run)).stdout)}


async def measure() -> Sequence[Row]:
    with program_running("tests.benchmarks.canned_engine") as engine:
        calls = await interleaved(
            {name: functools.partial(_calls, name, engine.base_url) for name in ("ours", "aiohttp")}
        )
    return [Row("agents: a call", "µs", calls["ours"]["call_us"], CLIENT, calls["aiohttp"]["call_us"])]
