"""An installation whose planes and machines communicate over links that a fault can cut.

It takes a folder, and what else machines and planes find in their environment, and returns a
`World`. Every machine reaches the web process by its own link; all processes reach the gateway by
one link.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import psycopg

from seamlessflow.cli.local.environment import (
    Addresses,
    gateway_environment,
    machine_environment,
    plane_environment,
)
from seamlessflow.cli.local.layouts import LAYOUTS, MULTIPLEXED
from seamlessflow.cli.local.machines import LocalMachine, supervisor_spec
from seamlessflow.cli.local.planes import plane_specs
from seamlessflow.cli.local.ports import claimed_port
from seamlessflow.cli.local.process_tree import ProcessTree
from seamlessflow.cli.local.services import ServiceUrls, services_prepare
from seamlessflow.cli.local.stack import Stack
from seamlessflow.cli.local.state import Home
from seamlessflow.cli.platform import welcome
from seamlessflow.client import Client
from tests.acceptance.platform_process import processes_matching
from tests.benchmarks.faults.links import LOOPBACK, Link, link_opened

WEB_PORT, GATEWAY_PORT = 8570, 8670
MACHINES: tuple[LocalMachine, ...] = LAYOUTS[MULTIPLEXED]
Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class World:
    home: Home
    models: Path
    urls: ServiceUrls
    web_url: str
    gateway_url: str
    web_links: Mapping[str, Link]  # by machine
    gateway_link: Link
    loop: asyncio.AbstractEventLoop
    machines: tuple[LocalMachine, ...] = MACHINES

    @property
    def token(self) -> str:
        return self.home.cli_token_file.read_text().strip()

    def client(self) -> Client:
        return Client(self.web_url, self.token)

    def database(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self.urls.database_url, autocommit=True)

    def find(self, *words: str, under: str | None = None) -> list[psutil.Process]:
        """Return our processes whose command line contains all `words`, optionally only those below
        one whose command line contains `under`."""
        return processes_matching(psutil.Process().children(recursive=True), words, under=under)


@asynccontextmanager
async def world_running(
    home: Home,
    models: Path,
    *,
    machine_environ: Callable[[str], Environ] = lambda name: {},
    plane_environ: Environ | None = None,
    server_environ: Environ | None = None,
) -> AsyncIterator[World]:
    """`machine_environ` is for one machine, by name; `server_environ` is for the database and the
    broker."""
    environ = {**os.environ, "MODEL_ROOTS": str(models)}
    home.create()
    with home.lock(), _addresses() as addresses:
        async with AsyncExitStack() as stack, ProcessTree(log_dir=home.logs) as tree:
            services = services_prepare(home, environ=environ)
            gateway_link = await stack.enter_async_context(link_opened(addresses.gateway_url))
            web_links = {
                machine.name: await stack.enter_async_context(link_opened(addresses.web_url))
                for machine in MACHINES
            }
            await tree.start(
                *(replace(spec, env={**spec.env, **(server_environ or {})}) for spec in services.specs)
            )
            public = Addresses(addresses.web_url, gateway_link.url)
            planes = plane_environment(home, services.urls, public, environ=environ) | dict(
                plane_environ or {}
            )
            machines = machine_environment(home, services.urls, public, environ=environ)
            installation = Stack(home, tree, services.urls, addresses, planes, machines, listeners={})
            installation = await installation.prepared(MACHINES)
            database_url, _ = await installation.gateway_database()
            specs = plane_specs(
                addresses,
                env=planes,
                gateway_env=gateway_environment(planes, database_url=database_url),
                cwd=home.root,
            )
            supervisors = [
                supervisor_spec(
                    home,
                    machine,
                    addresses=Addresses(web_links[machine.name].url, gateway_link.url),
                    env=machines | dict(machine_environ(machine.name)),
                )
                for machine in MACHINES
            ]
            await asyncio.gather(tree.start(*specs), tree.start(*supervisors))
            await welcome(installation)
            yield World(
                home,
                models,
                services.urls,
                addresses.web_url,
                gateway_link.url,
                web_links,
                gateway_link,
                asyncio.get_running_loop(),
            )


@contextmanager
def _addresses() -> Iterator[Addresses]:
    with claimed_port(WEB_PORT) as web, claimed_port(GATEWAY_PORT) as gateway:
        yield Addresses(f"http://{LOOPBACK}:{web}", f"http://{LOOPBACK}:{gateway}")
