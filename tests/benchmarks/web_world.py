"""A web process with its own databases, one project, one job and one visitor, for measuring pages
and sockets.

No gateway, scheduler or machine runs beside it, so it has the machine to itself.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from seamlessflow.cli.local.identity import same_identity, wrapped
from seamlessflow.cli.local.planes import web_command
from seamlessflow.cli.local.ports import LOOPBACK, claimed_port
from tests.benchmarks.measuring import DEATH_SIGNAL, STOP_TIMEOUT_S
from tests.fixtures.gateway_world import SECRET, GatewayWorld, database_migrate
from tests.fixtures.repository import ROOT
from tests.fixtures.services import services_running

START_TIMEOUT_S = 60.0
PREFERRED_PORT = 8800  # below the range from which outgoing connections take theirs
VISITOR = "u"  # the user that GatewayWorld makes


@dataclass(frozen=True, slots=True)
class WebWorld:
    """`data` writes rows as the planes would; `environ` is the environment of Django's
    processes."""

    data: GatewayWorld
    environ: Mapping[str, str]
    base_url: str
    web_pid: int

    def sign_in_link(self) -> str:
        command = [sys.executable, "manage.py", "create_sign_in_link", "--user", VISITOR]
        done = subprocess.run(command, cwd=ROOT, env=self.environ, check=True, capture_output=True, text=True)
        return done.stdout.strip()


@asynccontextmanager
async def web_world() -> AsyncIterator[WebWorld]:
    with (
        tempfile.TemporaryDirectory(prefix="sf-bench-") as name,
        services_running(Path(name) / "services", "--not-durable") as services,
        claimed_port(PREFERRED_PORT) as port,
    ):
        folder = Path(name)
        database_migrate(services.urls, artifacts=folder / "artifacts")
        data = GatewayWorld(services.urls["DATABASE_URL"], folder)
        data.make_job()
        data.make_token()
        base_url = f"http://{LOOPBACK}:{port}"
        environ = os.environ | services.urls | _web_environ(folder, base_url)
        with (folder / "web.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220
                wrapped(web_command(base_url), identity=same_identity(), death_signal=DEATH_SIGNAL),
                cwd=ROOT, env=environ, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            await _until_up(base_url, process, folder / "web.log")
            yield WebWorld(data, environ, base_url, process.pid)
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _web_environ(folder: Path, base_url: str) -> dict[str, str]:
    return {
        "SEAMLESSFLOW_SECRET_KEY": SECRET,
        "ARTIFACT_ROOT": str(folder / "artifacts"),
        "MODEL_ROOTS": str(folder),
        "SEAMLESSFLOW_WEB_URL": base_url,
        "DJANGO_SETTINGS_MODULE": "seamlessflow.control_plane.settings",
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT / 'workers'}",
    }


async def _until_up(base_url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"{base_url}/healthz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError as error:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"The web process did not start:\n{log.read_text()}") from error
            await asyncio.sleep(0.1)
