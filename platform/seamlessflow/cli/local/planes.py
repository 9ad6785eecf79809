"""How to start the processes of the control plane and the data plane, and check that they are running.

Takes addresses and an environment; returns one `ProcessSpec` per process. All listen on the host of their address.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from seamlessflow.cli.local.environment import Addresses
from seamlessflow.cli.local.process_tree import ProcessSpec
from seamlessflow.runtime.http.client import HttpConnections
from seamlessflow.runtime.http.heads import address_of, request_head, request_whole
from seamlessflow.runtime.http.limits import KEEPALIVE_S

CELERY_APP = "seamlessflow.control_plane.celery"
ASGI_APP = "seamlessflow.control_plane.asgi:application"
HTTP_PROTOCOL = "seamlessflow.control_plane.connections:HttpProtocol"
NUM_BACKGROUND_THREADS = 2
GRACEFUL_S = 3
START_TIMEOUT_S = 90.0
HEALTH_PATH = "/healthz"
HEALTH_TIMEOUT_S = 5.0


def plane_specs(
    addresses: Addresses,
    *,
    env: Mapping[str, str],
    gateway_env: Mapping[str, str],
    cwd: Path,
    listeners: Mapping[str, int] | None = None,
) -> tuple[ProcessSpec, ...]:
    """Return what to start. `gateway_env` contains only the gateway's own database address.

    `listeners`: sockets that gateways inherit, by address. Without one, a gateway opens its own.
    """
    spec = partial(ProcessSpec, env=env, cwd=cwd, ready_timeout_s=START_TIMEOUT_S)
    return (
        spec(name="web", command=web_command(addresses.web_url), ready=_answers(addresses.web_url)),
        *(
            spec(
                name="gateway" if number == 1 else f"gateway-{number}",
                command=_gateway(url, (listeners or {}).get(url)),
                env=dict(gateway_env) | {"SEAMLESSFLOW_GATEWAY_URL": url},
                ready=_answers(url),
                pass_fds=tuple(fd for listened, fd in (listeners or {}).items() if listened == url),
            )
            for number, url in enumerate(addresses.gateway_urls, start=1)
        ),
        spec(name="scheduler", command=_django("run_scheduler")),
        # It uses threads, because a pool of processes would outlive a killed worker.
        spec(
            name="background",
            command=_celery(
                *("worker", "-Q", "background", "-n", "background@%h"),
                *("-P", "threads", "-c", str(NUM_BACKGROUND_THREADS), "--without-mingle", "--without-gossip"),
            ),
        ),
        spec(name="beat", command=_celery("beat", "--schedule", str(cwd / "beat-schedule"), "--pidfile", "")),
    )


def command_spec(arguments: tuple[str, ...], *, env: Mapping[str, str], cwd: Path) -> ProcessSpec:
    """Return a management command that runs once."""
    return ProcessSpec(name=arguments[0], command=_django(*arguments), env=env, cwd=cwd)


def web_command(url: str) -> tuple[str, ...]:
    """Return the web process on `url`. On a stop it closes sockets with 1012 (service restart) and waits at most
    GRACEFUL_S."""
    return _python(
        "uvicorn",
        ASGI_APP,
        *_bound_to(url),
        *("--http", HTTP_PROTOCOL),
        *("--no-access-log", "--timeout-graceful-shutdown", str(GRACEFUL_S)),
        *("--timeout-keep-alive", str(KEEPALIVE_S)),
        # Compressing the same frame for each socket would cost several times as much as sending it.
        *("--ws-per-message-deflate", "false"),
    )


def _gateway(url: str, listener: int | None) -> tuple[str, ...]:
    inherited = () if listener is None else ("--fd", str(listener))
    return _python("seamlessflow.data_plane", *_bound_to(url), *inherited)


def _django(*arguments: str) -> tuple[str, ...]:
    return _python("django", *arguments)


def _celery(*arguments: str) -> tuple[str, ...]:
    return _python("celery", "-A", CELERY_APP, *arguments)


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def _bound_to(url: str) -> tuple[str, ...]:
    split = urlsplit(url)
    return ("--host", str(split.hostname), "--port", str(split.port))


def _answers(url: str) -> Callable[[], Awaitable[bool]]:
    return partial(answers_http, url)


async def answers_http(url: str) -> bool:
    """Whether a server answers there with anything but a server error."""
    connections = HttpConnections(peer=url, idle_s=0)
    address = address_of(url)
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            connection = await connections.connect(address)
            connection.ask(request_whole(request_head("GET", address, HEALTH_PATH)), silence_s=None)
            return await connection.head() < HTTPStatus.INTERNAL_SERVER_ERROR
    except OSError:
        return False
    finally:
        connections.close()
