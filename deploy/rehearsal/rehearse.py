"""Builds the images, runs the compose file with real containers, completes a job, restores a back-up.

    python deploy/rehearsal/rehearse.py --folder DIR [--pip-conf FILE] [--npmrc FILE] [--mount HOST:CONTAINER:ro]...

Needs root, podman, mmdebstrap where no registry can be reached, and the checkout's environment (`make setup`).
Prints the figures as JSON at the end; leaves nothing running. A base that cannot be pulled is made from Debian's
packages, PostgreSQL and Valkey are stand-ins, and the figures say so.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from containers import ROOT, Engine, engine_running

sys.path[:0] = [str(ROOT), str(ROOT / "platform"), str(ROOT / "workers")]

from seamlessflow.client import Client  # noqa: E402
from tests.acceptance.conftest import calculator_spec  # noqa: E402
from tests.acceptance.models import example_model, example_tasks  # noqa: E402

BASE = "docker.io/library/debian:bookworm-20250520-slim"
SUITE = "bookworm"
IMAGES = ("gateway", "control-plane", "worker")
SECRETS = (
    "SEAMLESSFLOW_SECRET_KEY", "SEAMLESSFLOW_JOIN_TOKEN", "POSTGRES_PASSWORD", "GATEWAY_DATABASE_PASSWORD",
    "VALKEY_PASSWORD", "DOORBELL_PASSWORD",
)  # fmt: skip
WEB_PORT, GATEWAY_PORT = 18000, 18100
NUM_UPDATES = 3
HEALTHY_TIMEOUT_S = 120.0
figures: dict[str, Any] = {}


def timed(name: str, deed: Callable[[], object]) -> None:
    print(f"{name} ...", file=sys.stderr, flush=True)
    started_at = time.monotonic()
    deed()
    figures[f"{name}, s"] = round(time.monotonic() - started_at, 1)


def main() -> int:
    options = _options()
    options.folder = options.folder.absolute()
    tools = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "local" / "tools.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    (compose_program,) = Path(tools.stdout.strip()).glob("lib/python*/site-packages/compose/docker-compose")
    with engine_running(options.folder, compose_program) as engine:
        base_make(engine, options.folder)
        images_build(engine, options)
        configure(engine, options.folder)
        try:
            rehearse(engine, options.folder)
        finally:
            engine.compose("down", "--volumes", "--timeout", "20")
    print(json.dumps(figures, indent=2))
    return 0


def base_make(engine: Engine, folder: Path) -> None:
    if engine.has_image(BASE):
        return
    engine.podman("pull", BASE, check=False)
    if engine.has_image(BASE):
        figures["base"] = "pulled"
        return
    archive = folder / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(archive)]
    timed("base from packages", lambda: subprocess.run(command, check=True))
    engine.podman("import", str(archive), BASE)
    figures["base"] = "made by mmdebstrap: no registry"


def images_build(engine: Engine, options: argparse.Namespace) -> None:
    mounts = [part for mount in options.mount for part in ("--volume", mount)]
    given = [("pip", options.pip_conf), ("npm", options.npmrc)]
    secret_flags = [part for name, path in given if path for part in ("--secret", f"id={name},src={path}")]
    for name in IMAGES:
        tag, dockerfile = (
            f"localhost/seamlessflow/{name}:dev",
            ROOT / "deploy" / "images" / f"{name}.Dockerfile",
        )
        timed(f"build {name}", lambda t=tag, d=dockerfile: engine.build(d, t, *mounts, *secret_flags))  # type: ignore[misc]
        size = int(engine.podman("image", "inspect", "--format", "{{.Size}}", tag))
        figures[f"{name}, MB"] = round(size / 1e6)
    standins = ROOT / "deploy" / "rehearsal" / "standins.Dockerfile"
    for name in ("postgres", "valkey"):
        engine.build(standins, f"localhost/seamlessflow/standin-{name}", "--target", name)
    figures["postgres and valkey"] = "stand-ins from Debian's packages"


def configure(engine: Engine, folder: Path) -> None:
    example_model(folder / "models" / "calculator")
    example_tasks(folder / "models" / "tasks.jsonl")
    for path in (folder, folder / "models", *(folder / "models").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    names = (
        "SEAMLESSFLOW_SECRET_KEY",
        "SEAMLESSFLOW_JOIN_TOKEN",
        "POSTGRES_PASSWORD",
        "GATEWAY_DATABASE_PASSWORD",
        "VALKEY_PASSWORD",
        "DOORBELL_PASSWORD",
    )
    settings = {name: secrets.token_hex(32) for name in names} | {
        "SEAMLESSFLOW_WEB_URL": f"http://localhost:{WEB_PORT}",
        "WEB_BIND": f"127.0.0.1:{WEB_PORT}",
        "GATEWAY_BIND": f"127.0.0.1:{GATEWAY_PORT}",
        "SEAMLESSFLOW_REGISTRY": "localhost/seamlessflow",
        "MODELS_DIR": str(folder / "models"),
    }
    (folder / "env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    deploy = ROOT / "deploy"
    engine.files = [deploy / "compose" / "compose.yaml", deploy / "rehearsal" / "compose.standins.yaml"]


def rehearse(engine: Engine, folder: Path) -> None:
    timed("compose up", lambda: engine.compose("up", "--detach", "--no-build"))
    timed("all healthy", lambda: _wait_healthy(engine))
    token = engine.inside("web", "python", "-m", "django", "create_token", "--name", "rehearsal")
    with Client(f"http://localhost:{WEB_PORT}", token) as client:
        timed(f"job of {NUM_UPDATES} updates", lambda: _job_complete(client))
        before = _shown(client)
    back_up_and_restore(engine, folder)
    with Client(
        f"http://localhost:{WEB_PORT}", token
    ) as client:  # the token is a row: it came back with the others
        assert _shown(client) == before, "the restored installation differs"
        timed("a job after the restore", lambda: _job_complete(client))
    figures["jobs and versions before and after the restore"] = "equal"


def back_up_and_restore(engine: Engine, folder: Path) -> None:
    """Follow docs/operations.md: use the platform's own commands and empty volumes."""
    backup = folder / "backup"
    backup.mkdir()
    backup.chmod(0o777)  # the containers' user is none of this host's

    def run(*command: str) -> None:
        engine.compose(
            *("run", "--rm", "--no-deps", "--volume", f"{backup}:/backup", "web", "python", "-m", "django"),
            *(*command, "/backup"),
        )

    def restore() -> None:
        engine.compose("down", "--volumes", "--timeout", "20")
        engine.compose("up", "--detach", "--no-build", "--wait", "postgres")
        run("restore_back_up")
        engine.compose("up", "--detach", "--no-build")
        _wait_healthy(engine)

    timed("back-up", lambda: run("back_up"))
    manifest = json.loads((backup / "manifest.json").read_text())
    figures["database dump, MB"] = round(manifest["database"]["num_bytes"] / 1e6, 1)
    figures["artifacts, MB"] = round(sum(file["num_bytes"] for file in manifest["files"]) / 1e6, 1)
    timed("restore into empty volumes, until healthy", restore)


def _job_complete(client: Client) -> None:
    spec = calculator_spec(Path("/models"), num_updates=NUM_UPDATES)
    job = client.job_wait(client.job_submit(spec)["id"])
    versions = [row["version"] for row in client.job_part(job["id"], "versions")["results"]]
    assert versions == list(range(NUM_UPDATES, -1, -1)), versions


def _shown(client: Client) -> list[tuple[str, str, list[str]]]:
    """Return every job with the weights that it published."""
    return [
        (
            job["id"],
            job["state"],
            [row["manifest_sha256"] for row in client.job_part(job["id"], "versions")["results"]],
        )
        for job in client.job_list()
    ]


def _wait_healthy(engine: Engine) -> None:
    deadline_at = time.monotonic() + HEALTHY_TIMEOUT_S
    while True:
        lines = engine.podman("ps", "--all", "--format", "{{.Names}} {{.Status}}").splitlines()
        ours = [line for line in lines if line.startswith(engine.project)]
        waiting = [line for line in ours if "starting" in line or "unhealthy" in line or "Created" in line]
        if ours and not waiting:
            return
        if time.monotonic() > deadline_at:
            sys.exit(f"not healthy after {HEALTHY_TIMEOUT_S:.0f} s: {'; '.join(waiting)}")
        time.sleep(0.5)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="scratch: models, secrets, dumps, sockets")
    parser.add_argument("--pip-conf", type=Path, help="pip's settings while building, as for a mirror")
    parser.add_argument("--npmrc", type=Path, help="npm's settings while building")
    parser.add_argument(
        "--mount", action="append", default=[], help="seen while building, as certificates or wheels"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
