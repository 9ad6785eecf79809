"""Runs podman as a container engine with Docker's API, on hosts that have neither Docker nor systemd.

Enters: a scratch folder. Leaves: a running API socket, and ways to run podman and Docker Compose against it.
Two things that such hosts lack are made up for: where cgroups are mounted in the hybrid way, which crun refuses, the
engine gets a mount namespace without the second half; and without systemd's timers nobody runs health checks, so a loop
does. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_HYBRID_CGROUPS = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
START_TIMEOUT_S = 20.0
# Without CAP_SYS_RESOURCE limits can only be lowered.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
cgroups = "disabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""


@dataclass
class Engine:
    folder: Path
    compose_program: Path
    project: str = "sf-rehearsal"
    files: list[Path] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "podman.sock"

    @property
    def environ(self) -> dict[str, str]:
        return os.environ | {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "DOCKER_HOST": f"unix://{self.socket}",
        }

    def podman(self, *arguments: str, check: bool = True, text: str | None = None) -> str:
        """Run podman in the service's mount namespace, the only one where its network namespaces are mounted."""
        assert self.process is not None
        done = subprocess.run(
            ["nsenter", "-t", str(self.process.pid), "-m", "podman", *arguments],
            env=self.environ, input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            sys.exit(f"podman {' '.join(arguments[:4])} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()

    def has_image(self, name: str) -> bool:
        assert self.process is not None
        return bool(self.podman("images", "--quiet", name, check=False))

    def build(self, dockerfile: Path, tag: str, *flags: str) -> None:
        """Build an image with `chroot` isolation, because steps of a build need no namespace of their own here."""
        self.podman(
            *(
                "build",
                "--isolation",
                "chroot",
                "--network",
                "host",
                "-f",
                str(dockerfile),
                "-t",
                tag,
                *flags,
                str(ROOT),
            )
        )

    def compose(self, *arguments: str) -> None:
        files = [part for file in self.files for part in ("-f", str(file))]
        command = [
            str(self.compose_program),
            "-p",
            self.project,
            *files,
            "--env-file",
            str(self.folder / "env"),
        ]
        done = subprocess.run(
            [*command, *arguments], env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"compose {' '.join(arguments)} failed: {done.stderr.strip()[-2000:]}")

    def container(self, service: str) -> str:
        return f"{self.project}-{service}-1"

    def inside(self, service: str, *command: str, text: str | None = None) -> str:
        return self.podman(
            "exec", *(["-i"] if text is not None else []), self.container(service), *command, text=text
        )


@contextmanager
def engine_running(folder: Path, compose_program: Path) -> Iterator[Engine]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "containers.conf").write_text(CONTAINERS_CONF)
    engine = Engine(folder, compose_program)
    service = ("podman", "system", "service", "--time", "0", f"unix://{engine.socket}")
    with (folder / "service.log").open("wb") as log:
        engine.process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", WITHOUT_HYBRID_CGROUPS, "sh", *service],
            env=engine.environ,
            stdout=log,
            stderr=log,
        )
    stop = threading.Event()
    try:
        deadline_at = time.monotonic() + START_TIMEOUT_S
        while not engine.socket.exists():
            if time.monotonic() > deadline_at or engine.process.poll() is not None:
                sys.exit(f"podman's service did not start: {(folder / 'service.log').read_text()[-2000:]}")
            time.sleep(0.1)
        threading.Thread(target=_check_health, args=(engine, stop), daemon=True).start()
        yield engine
    finally:
        stop.set()
        engine.process.terminate()
        engine.process.wait(30)


def _check_health(engine: Engine, stop: threading.Event) -> None:
    while not stop.wait(1.0):
        for name in engine.podman("ps", "--quiet", check=False).split():
            engine.podman("healthcheck", "run", name, check=False)
