"""Machines that share no folder train a job through a store of objects, and another one goes on with it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform
from tests.fixtures.s3_server import SECRET_KEY, S3Server, objects, s3_server

__all__ = ["s3_server"]

NUM_UPDATES = 4
StartMachine = Callable[..., "HostOfAMachine"]


class HostOfAMachine:
    """A supervisor with a home and a cache of its own, as on another host."""

    def __init__(self, installation: PlatformProcess, folder: Path, name: str, tags: list[str]) -> None:
        self.home = folder / name
        self.home.mkdir()
        with installation.client() as client:
            (self.home / "token").write_text(client.machine_register(name, tags)["token"])
            url = client.base_url
        command = [sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", name]
        command += ["--control-plane-url", url, "--token-file", str(self.home / "token"), "--cores", "0"]
        environ = installation.environ | {"SEAMLESSFLOW_HOME": str(self.home)}
        with (self.home / "supervisor.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=self.home)

    @property
    def cache(self) -> Path:
        return self.home / "cache" / "artifacts"

    def environs(self, *words: str) -> list[dict[str, str]]:
        """Return the environments of those of its processes whose command line contains the words."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [one.environ() for one in family if all(word in " ".join(one.cmdline()) for word in words)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def machines(installation: PlatformProcess, folder: Path) -> Iterator[StartMachine]:
    with ExitStack() as stack:

        def start(name: str, *tags: str) -> HostOfAMachine:
            host = HostOfAMachine(installation, folder, name, list(tags))
            stack.callback(host.kill)
            return host

        yield start


def uploaded_spec(client: Client, model_root: Path) -> dict[str, Any]:
    """The spec of a job whose model and tasks are uploads, so that no machine needs the folder that they came from."""
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, checkpoint_every_updates=2)
    spec["model"]["source"] = client.upload(model_root / "calculator")
    spec["environment"]["tasks"] = client.upload(model_root / "tasks.jsonl")
    return spec


def test_a_job_trains_over_objects_and_goes_on_where_its_trainer_died(
    model_root: Path, tmp_path: Path, s3_server: S3Server
) -> None:
    root = s3_server.root("job")
    with new_platform(tmp_path / "planes", model_root=tmp_path, has_fork_server=False) as installation:
        installation.environ |= s3_server.environ | {"ARTIFACT_ROOT": root}
        installation.start("--no-machines")
        with machines(installation, tmp_path) as start, installation.client() as client:
            first = start("first", "rollout", "train")
            engine, agents = start("engine", "rollout"), start("agents", "agent")
            job_id = client.job_submit(uploaded_spec(client, model_root))["id"]
            wait_for_version(client, job_id, 2)

            assert all(SECRET_KEY not in environ.values() for environ in engine.environs("rollout.engine"))
            assert all(SECRET_KEY not in environ.values() for environ in agents.environs("workers.agents"))
            assert first.environs("workers.train")[0]["AWS_SECRET_ACCESS_KEY"] == SECRET_KEY
            eventually(lambda: checkpoints(root, s3_server), timeout_s=60, what="a checkpoint in the store")
            first.kill()
            start("second", "rollout", "train")
            job = client.job_wait(job_id)

            assert (job["state"], job["latest_version"]) == ("completed", NUM_UPDATES), job["state_reason"]
            assert_audit_holds(client, job_id)
            trained_on = [
                phase["machine"]
                for phase in client.job_part(job_id, "phases", limit=200)["results"]
                if phase["role"] == "train"
            ]
            assert {"first", "second"} <= set(trained_on)
            assert list(engine.cache.glob("files/*/versions/*/manifest.json")), (
                "it served what others trained"
            )
            assert not (agents.home / "cache" / "artifacts" / "files").exists()
            client.version_export(job_id, NUM_UPDATES, tmp_path / "exported")
            assert list((tmp_path / "exported").glob("*.safetensors"))
    said = [path for path in tmp_path.rglob("*.log") if SECRET_KEY.encode() in path.read_bytes()]
    assert not said, "the store's secret is in a log"


def checkpoints(root: str, server: S3Server) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environ.items():
            patch.setenv(name, value)
        return [str(name) for name in objects().glob(f"{root}/*/checkpoints/*/whole.json")]
