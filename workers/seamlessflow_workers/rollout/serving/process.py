"""How an engine process behaves, whichever engine it runs: it is a child of the machine's supervisor.

It takes a command line and the engine made from it, and writes `ready` to standard output once /health answers. It
exits at once with status 0 on SIGTERM, with 2 and one line on standard error if it cannot serve the requested model,
with 65 and one line if no machine could (`process.input_faults`), and with 1 and one line if its engine fails.
Invariant: its exit waits for no thread, process or connection of the engine.

The serving modules are imported late, so that a wrong argument is reported before anything is loaded.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from seamlessflow.runtime.logs import log_to_stderr
from seamlessflow_workers.process.launch import bind_to_parent

if TYPE_CHECKING:
    from seamlessflow_workers.rollout.serving.served_engine import ServedEngine

FAILED, REFUSED = 1, 2


def die_with_parent() -> None:
    bind_to_parent(parent_pid=os.getppid(), death_signal=signal.SIGKILL)


def leave_when_told() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))


def engine_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the flags that every kind of engine takes, so that a supervisor starts all of them alike."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--model", type=Path, required=True, help="folder with config.json and safetensors")
    parser.add_argument(
        "--weights",
        type=Path,
        help="safetensors file or folder that replaces the model's own weights, or an adapter over them",
    )
    parser.add_argument("--weight-version", default="default")
    parser.add_argument(
        "--served-model-name", help="name in /v1/models and metrics; default: the folder's name"
    )
    parser.add_argument(
        "--control-fd",
        type=int,
        help="inherited socket to the supervisor, at whose word gateways are admitted on a free port",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds", type=Path, help="listen on this unix socket")
    where.add_argument("--port", type=int, help="listen on this port; 0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=64, help="sequences decoded at once")
    parser.add_argument(
        "--max-num-queued-requests",
        type=int,
        default=1024,
        help="unfinished requests beyond which further ones get 503",
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--seed", type=int, help="seed of requests without their own; default: random")
    return parser


def arguments_parse(parser: argparse.ArgumentParser, *, counts: Iterable[str] = ()) -> argparse.Namespace:
    """Parse this process's arguments and set up logging. `counts` names further arguments that must be at least 1."""
    arguments = parser.parse_args()
    for name in ("max_model_len", "slots", "max_num_queued_requests", *counts):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(arguments, name)}")
    log_to_stderr()
    return arguments


async def serve(engine: "ServedEngine", arguments: argparse.Namespace, *, program: str) -> NoReturn:
    """Listen where the arguments say, until the engine fails or the supervisor is gone."""
    from seamlessflow_workers.rollout.serving.server import EngineServer
    from seamlessflow_workers.rollout.serving.supervised import Supervised

    server = EngineServer(engine)
    engine.start()
    waiting: list[asyncio.Task[object]] = [asyncio.create_task(engine.failed.wait())]
    port = None
    try:
        if arguments.uds is not None:
            await server.http.listen_at(arguments.uds)
        else:
            port = await server.http.listen(arguments.host, arguments.port)
        if arguments.control_fd is not None:
            supervised = Supervised(server.app, engine)
            door_port = await supervised.http.listen(arguments.host)
            control = socket.socket(fileno=arguments.control_fd)
            control.set_inheritable(False)
            waiting.append(asyncio.create_task(supervised.obey(control, port=door_port)))
    except OSError as error:
        leave(program, REFUSED, f"cannot listen: {error}")
    # The port is printed only if the caller cannot know it.
    print(f"ready {port}" if arguments.port == 0 else "ready", flush=True)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not engine.failed.is_set():
        leave(program, 0, "the control socket was closed")
    leave(program, FAILED, f"the engine failed: {engine.failure!r}")


def leave(program: str, status: int, message: str) -> NoReturn:
    print(f"{program}: {message}", file=sys.stderr, flush=True)
    os._exit(status)
