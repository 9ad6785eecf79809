"""`python -m seamlessflow_workers.rollout.engine`: one engine process, a child of the machine's supervisor.

It dies with its parent, prints `ready` once /health answers, leaves at once with status 0 on SIGTERM, with 2 and one
line on standard error when the model cannot be served as asked, with 1 when a step fails.
"""

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
# The event loop and the engine's thread share the interpreter: neither should wait 5 ms for the other.
SWITCH_INTERVAL_S = 0.0005


def main() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    arguments = _parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    asyncio.run(_serve(arguments))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow-engine", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder with config.json and safetensors")
    parser.add_argument(
        "--weights",
        type=Path,
        help="safetensors file or folder that replaces the model's own, or an adapter over it",
    )
    parser.add_argument("--weight-version", default="default")
    parser.add_argument(
        "--served-model-name", help="name in /v1/models and metrics; default: the folder's name"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, help="listen on this unix socket")
    where.add_argument("--port", type=int, help="listen on this port; 0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=64, help="sequences decoded at once")
    parser.add_argument("--max-num-batched-tokens", type=int, default=1024, help="prompt tokens per step")
    parser.add_argument(
        "--max-num-queued-requests", type=int, default=1024, help="unfinished requests; then 503"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--backend", choices=("auto", "dense", "generic"), default="auto")
    parser.add_argument("--seed", type=int, help="of requests without their own; default: from the system")
    arguments = parser.parse_args()
    for name in ("max_model_len", "slots", "max_num_batched_tokens", "max_num_queued_requests"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(arguments, name)}")
    return arguments


async def _serve(arguments: argparse.Namespace) -> None:
    # Imported late: a wrong argument is answered before torch is loaded.
    import torch
    from aiohttp import web

    from seamlessflow_workers.rollout.engine.model_loading import Backend, LoadOptions, load_runner
    from seamlessflow_workers.rollout.engine.served_engine import EngineSettings
    from seamlessflow_workers.rollout.engine.server import build_app
    from seamlessflow_workers.rollout.engine.service import EngineService

    try:
        runner = load_runner(
            LoadOptions(
                model=arguments.model,
                weights=arguments.weights,
                dtype=getattr(torch, arguments.dtype),
                device=torch.device(arguments.device),
                max_model_len=arguments.max_model_len,
                num_slots=arguments.slots,
                backend=Backend(arguments.backend),
            )
        )
    except (ValueError, OSError, RuntimeError) as error:
        _leave(2, f"seamlessflow-engine: {str(error).splitlines()[0]}")
    settings = EngineSettings(
        model_name=arguments.served_model_name or arguments.model.resolve().name,
        weight_version=arguments.weight_version,
        max_batched_tokens=arguments.max_num_batched_tokens,
        max_num_queued_requests=arguments.max_num_queued_requests,
        # Two engines must not draw alike: siblings of a group would be copies of one another.
        seed=secrets.randbits(64) if arguments.seed is None else arguments.seed,
    )
    service = EngineService(runner, settings)
    web_runner = web.AppRunner(build_app(service), handler_cancellation=True, access_log=None)
    await web_runner.setup()
    site: web.BaseSite
    if arguments.uds is not None:
        # A socket file that a killed predecessor left behind is in the way.
        with contextlib.suppress(FileNotFoundError):
            arguments.uds.unlink()
        site = web.UnixSite(web_runner, arguments.uds)
    else:
        site = web.TCPSite(web_runner, arguments.host, arguments.port)
    try:
        await site.start()
    except OSError as error:
        _leave(2, f"seamlessflow-engine: cannot listen: {error}")
    # The port is told only where the caller cannot know it.
    print(f"ready {web_runner.addresses[0][1]}" if arguments.port == 0 else "ready", flush=True)
    await service.failed.wait()
    _leave(1, f"seamlessflow-engine: a step failed: {service.engine.failure!r}")


def _leave(status: int, message: str) -> NoReturn:
    """Without waiting for the engine's thread or for open connections."""
    print(message, file=sys.stderr, flush=True)
    os._exit(status)


if __name__ == "__main__":
    main()
