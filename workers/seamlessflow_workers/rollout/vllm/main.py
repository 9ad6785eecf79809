"""`ENGINE_PYTHON -m seamlessflow_workers.rollout.vllm.main`: one vLLM engine, a child of the machine's supervisor.

Takes the embedded engine's flags and speaks its HTTP, so a supervisor starts either in the same way. Prints `ready`
once /health answers, leaves at once with status 0 on SIGTERM, with 2 and one line on standard error when the model
cannot be served as asked, with 1 when the engine dies.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from seamlessflow_workers.supervisor.launch import bind_to_parent

DEFAULT_GPU_MEMORY_SHARE = 0.9  # vLLM's own

# vLLM's core and worker are spawned, and a spawned process imports its parent's main module first (unless that is a
# package's __main__, which is why this is none): none of them outlives its parent.
bind_to_parent(parent_pid=os.getppid(), death_signal=signal.SIGKILL)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    arguments = _parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(arguments))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="seamlessflow-vllm", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder with config.json and safetensors")
    parser.add_argument(
        "--weights",
        type=Path,
        help="safetensors file or folder that replaces the model's own, or an adapter over it",
    )
    parser.add_argument("--weight-version", default="default")
    parser.add_argument("--served-model-name", help="name in /v1/models; default: the folder's name")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, help="listen on this unix socket")
    where.add_argument("--port", type=int, help="listen on this port; 0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=64, help="sequences decoded at once")
    parser.add_argument(
        "--max-num-queued-requests", type=int, default=1024, help="unfinished requests; then 503"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--gpu-memory-utilization",
        type=float,
        default=os.environ.get("SEAMLESSFLOW_GPU_MEMORY_SHARE") or DEFAULT_GPU_MEMORY_SHARE,
        help="share of a GPU's memory; SEAMLESSFLOW_GPU_MEMORY_SHARE, else 0.9",
    )
    parser.add_argument("--seed", type=int, help="of requests without their own; default: from the system")
    arguments = parser.parse_args()
    if not 0 < arguments.gpu_memory_utilization <= 1:
        parser.error(
            f"--gpu-memory-utilization must be above 0, at most 1, got {arguments.gpu_memory_utilization}"
        )
    for name in ("max_model_len", "slots", "max_num_queued_requests"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(arguments, name)}")
    return arguments


async def _serve(arguments: argparse.Namespace) -> None:
    service = await _start(arguments)
    from aiohttp import web

    from seamlessflow_workers.rollout.engine.server import build_app

    runner = web.AppRunner(build_app(service), handler_cancellation=True, access_log=None)
    await runner.setup()
    site: web.BaseSite
    if arguments.uds is not None:
        # A socket file that a killed predecessor left behind is in the way.
        with contextlib.suppress(FileNotFoundError):
            arguments.uds.unlink()
        site = web.UnixSite(runner, arguments.uds)
    else:
        site = web.TCPSite(runner, arguments.host, arguments.port)
    try:
        await site.start()
    except OSError as error:
        _leave(2, f"cannot listen: {error}")
    # The port is told only where the caller cannot know it.
    print(f"ready {runner.addresses[0][1]}" if arguments.port == 0 else "ready", flush=True)
    await service.failed.wait()
    _leave(1, f"the engine died: {service.failure!r}")


async def _start(arguments: argparse.Namespace) -> Any:
    """A `VllmService` that can serve. Imports late: a wrong argument is answered before vLLM is loaded."""
    if not (arguments.model / "config.json").is_file():
        _leave(2, f"the model folder {arguments.model} has no config.json")
    from seamlessflow_workers.rollout.vllm.options import engine_arguments, set_environment

    set_environment(arguments.device)
    from seamlessflow_workers.rollout.engine.runner import WeightsError
    from seamlessflow_workers.rollout.engine.served_engine import EngineSettings
    from seamlessflow_workers.rollout.vllm.loading import ModelRefused, load_llm, model_limits
    from seamlessflow_workers.rollout.vllm.service import VllmService

    settings = EngineSettings(
        model_name=arguments.served_model_name or arguments.model.resolve().name,
        weight_version=arguments.weight_version,
        max_num_queued_requests=arguments.max_num_queued_requests,
    )
    try:
        llm = load_llm(engine_arguments(arguments), device=arguments.device)
        service = VllmService(llm, settings, model_limits(llm), can_free_memory=arguments.device == "cuda")
        await service.prepare(arguments.weights)
    except (ModelRefused, WeightsError) as error:
        _leave(2, str(error).splitlines()[0])
    return service


def _leave(status: int, message: str) -> NoReturn:
    """Without waiting for vLLM's processes, which end with this one, or for open connections."""
    print(f"seamlessflow-vllm: {message}", file=sys.stderr, flush=True)
    os._exit(status)


if __name__ == "__main__":
    main()
