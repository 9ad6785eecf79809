"""The whole product on one machine: database, broker, planes and machines, brought up in order.

Takes a home folder and a list of machines; yields a `Stack` with the addresses of what runs. Order: PostgreSQL and
Valkey; tables; owner and tokens; then web, scheduler, background work, gateway and supervisors in parallel. They stop
in reverse order. Invariant: whatever happens to this process, it leaves no process behind.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from seamlessflow.cli.local.brokers import external_brokers_answer
from seamlessflow.cli.local.environment import (
    Addresses,
    gateway_environment,
    machine_environment,
    plane_environment,
)
from seamlessflow.cli.local.listening import machine_listening, plane_listening
from seamlessflow.cli.local.machines import (
    LocalMachine,
    forget_tokens_of_other_database,
    missing_tokens,
    supervisor_spec,
)
from seamlessflow.cli.local.migration import bring_up_to_date, database_identity, gateway_database
from seamlessflow.cli.local.planes import command_spec, plane_specs
from seamlessflow.cli.local.ports import (
    LOOPBACK,
    PREFERRED_GATEWAY_PORT,
    PREFERRED_WEB_PORT,
    claimed_port,
    listening_socket,
)
from seamlessflow.cli.local.process_tree import ManagedProcess, ProcessTree
from seamlessflow.cli.local.services import ServiceUrls, services_prepare
from seamlessflow.cli.local.state import Home, RunInfo, now_text
from seamlessflow.core.access.operations import Scope

log = logging.getLogger(__name__)

# The command line may do all that this folder's owner may. Its token is valid as long as the folder exists.
CREATE_CLI_TOKEN = (
    *("create_token", "--installation", "--name", "cli", "--never-expires"),
    *("--scopes", ",".join(Scope)),
)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running installation. `plane_env` has its secret; `machine_env` may be given to any program."""

    home: Home
    tree: ProcessTree
    urls: ServiceUrls
    addresses: Addresses
    plane_env: Mapping[str, str]
    machine_env: Mapping[str, str]
    listeners: Mapping[str, int]  # sockets of the gateways, by address
    sign_in_link: str = ""  # for the owner's browser; it works once

    @property
    def web_url(self) -> str:
        return self.addresses.web_url

    @property
    def gateway_url(self) -> str:
        return self.addresses.gateway_url

    @property
    def processes(self) -> tuple[ManagedProcess, ...]:
        return self.tree.processes

    async def manage(self, *arguments: str) -> str:
        """Run one of the control plane's management commands and return its output."""
        return await self.tree.run_once(command_spec(arguments, env=self.plane_env, cwd=self.home.root))

    async def gateway_database(self) -> tuple[str, str]:
        """Return the gateway's database address and, if it uses the owner's role, the reason."""
        return await gateway_database(self.urls.database_url, self.urls.gateway_database_url)

    async def prepared(self, machines: Sequence[LocalMachine]) -> "Stack":
        """Create what must exist before the planes and the supervisors start: tables, owner and tokens. Returns this
        stack with a link to sign in."""
        identity = await database_identity(self.urls.database_url)
        await bring_up_to_date(
            self.home,
            database_url=self.urls.database_url,
            identity=identity,
            migrate=partial(self.manage, "migrate", "--noinput"),
        )
        forget_tokens_of_other_database(self.home, identity=identity)
        missing = missing_tokens(self.home, machines)
        if not self.home.cli_token_file.exists():
            missing[self.home.cli_token_file] = CREATE_CLI_TOKEN
        commands = (("ensure_owner",), ("create_sign_in_link",), *missing.values())
        _, link, *secrets = await self._manage_all(commands)
        for path, secret in zip(missing, secrets, strict=True):
            self.home.kept(path, secret)
        return replace(self, sign_in_link=link)

    async def _manage_all(self, commands: Sequence[Sequence[str]]) -> list[str]:
        """Run management commands in one process; returns the last word that each one printed."""
        outputs = json.loads(await self.manage("run_commands", *map(json.dumps, commands)))
        return [(output.split() or [""])[-1] for output in outputs]

    async def start(self, machines: Sequence[LocalMachine]) -> None:
        database_url, shortfall = await self.gateway_database()
        if shortfall:
            log.warning("%s", shortfall)
        gateway_env = gateway_environment(self.plane_env, database_url=database_url)
        planes = plane_specs(
            self.addresses,
            env=self.plane_env,
            gateway_env=gateway_env,
            cwd=self.home.root,
            listeners=self.listeners,
        )
        supervisors = [
            supervisor_spec(self.home, machine, addresses=self.addresses, env=self.machine_env)
            for machine in machines
        ]
        # Both batches start together: supervisors retry until the web answers, and they stop before it does.
        await asyncio.gather(self.tree.start(*planes), self.tree.start(*supervisors))


@asynccontextmanager
async def running_stack(
    home: Home,
    machines: Sequence[LocalMachine],
    *,
    environ: Mapping[str, str] | None = None,
    num_gateways: int = 1,
    listen_host: str = LOOPBACK,
    before_announced: Callable[[Stack], Awaitable[None]] | None = None,
) -> AsyncIterator[Stack]:
    """Start everything, yield, stop everything. Raises `InstallationRunning` if the home is in use.

    `before_announced` runs before any process can find this installation by its home.
    """
    environ = os.environ if environ is None else environ
    home.create()
    # The ports are released last, when none of our servers is listening any more.
    with home.lock(), _addresses(num_gateways, host=listen_host, last=home.web_port) as claimed:
        addresses, listeners = claimed
        async with ProcessTree(log_dir=home.logs) as tree:
            services = services_prepare(home, environ=environ)
            stack = _planned(home, tree, services.urls, addresses, listeners, environ, listen_host)
            await external_brokers_answer(environ)
            await tree.start(*services.specs)
            home.note_web_port(addresses.web_url)
            stack = await stack.prepared(machines)
            await stack.start(machines)
            if before_announced is not None:
                await before_announced(stack)
            home.write_run(_run_info(stack, shortfall=(await stack.gateway_database())[1]))
            yield stack


@contextmanager
def _addresses(
    num_gateways: int, *, host: str, last: int | None
) -> Iterator[tuple[Addresses, dict[str, int]]]:
    """Yield the addresses and the gateways' listening sockets. The port of the installation's last run is tried first,
    because bookmarks and SEAMLESSFLOW_WEB_URL name it.

    The sockets are ours, so agents whose gateway dies are not refused: they wait until it is started again.
    """
    with ExitStack() as claimed:
        web = claimed.enter_context(claimed_port(PREFERRED_WEB_PORT, last=last, host=host))
        port, listeners = max(PREFERRED_GATEWAY_PORT, web + 1), {}
        for _ in range(num_gateways):
            port = claimed.enter_context(claimed_port(port, host=host))
            listener = claimed.enter_context(listening_socket(port, host=host))
            listeners[f"http://{host}:{port}"] = listener.fileno()
            port += 1
        first, *more = listeners
        yield Addresses(f"http://{host}:{web}", first, tuple(more)), listeners


def _planned(
    home: Home,
    tree: ProcessTree,
    urls: ServiceUrls,
    addresses: Addresses,
    listeners: Mapping[str, int],
    environ: Mapping[str, str],
    listen_host: str,
) -> Stack:
    planes = plane_environment(home, urls, addresses, environ=environ)
    planes |= plane_listening(home, listen_host, environ=environ)
    machines = machine_environment(home, urls, addresses, environ=environ)
    machines |= machine_listening(listen_host, environ=environ)
    return Stack(home, tree, urls, addresses, planes, machines, listeners)


def _run_info(stack: Stack, *, shortfall: str) -> RunInfo:
    return RunInfo(
        pid=os.getpid(),
        started_at=now_text(),
        web_url=stack.web_url,
        gateway_url=stack.gateway_url,
        more_gateway_urls=list(stack.addresses.more_gateway_urls),
        database_url=stack.urls.database_url,
        broker_url=stack.urls.broker_url,
        gateway_role_shortfall=shortfall,
    )
