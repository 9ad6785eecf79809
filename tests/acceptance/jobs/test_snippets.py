"""What readers copy from README and docs runs as it stands, in a folder of their own.

The snippets of a document run in order, in one shell as far as variables and the folder go. `tests/fixtures/snippets`
says how a document marks those that cannot run here; tests/unit/deploy/test_snippet_forms.py checks the form of all.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess
from tests.acceptance.steering import web_url
from tests.fixtures.snippets import Snippet, snippets

BIN = Path(sys.prefix) / "bin"
FOLDER_OF_README = "/tmp/my-job"
RUN_S = 200
PROLOGUE = """
if [ -e "$STATE/variables" ]; then . "$STATE/variables"; cd "$(cat "$STATE/folder")"; fi
trap 'export -p > "$STATE/variables"; pwd > "$STATE/folder"' EXIT
set -aeuo pipefail
"""
RUN = [one for one in snippets() if not one.not_run and (one.file_name or one.language in ("sh", "python"))]


@dataclass
class Reader:
    """Somebody who follows a document: saves its files in `folder`, and runs its shell and Python."""

    folder: Path
    state: Path
    environ: dict[str, str]
    output: list[str] = field(default_factory=list)

    def follow(self, snippet: Snippet, **given: str) -> None:
        code = snippet.code.replace(FOLDER_OF_README, str(self.folder))
        if snippet.file_name:
            (self.folder / snippet.file_name).write_text(code)
        elif snippet.language == "python":
            self._run(snippet.id, f"python - <<'THE_END'\n{code}\nTHE_END\n", given)
        else:
            self._run(snippet.id, code, given)

    def _run(self, where: str, code: str, given: dict[str, str]) -> None:
        chosen = "".join(f"{name}={value}\n" for name, value in given.items())
        done = subprocess.run(
            ["bash", "-c", PROLOGUE + chosen + code],
            cwd=self.folder,
            env=self.environ | {"STATE": str(self.state)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {done.stdout}"
        self.output.append(done.stdout)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user of this host can read, as agents must."""
    with tempfile.TemporaryDirectory(prefix="sf-reader-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def reader(platform: PlatformProcess, folder: Path, tmp_path: Path, model_root: Path) -> Iterator[Reader]:
    """A reader in whose folder the example model was made already; jobs that they leave are cancelled."""
    shutil.copytree(model_root / "calculator", folder / "my-model")
    path = os.pathsep.join([str(BIN), platform.environ["PATH"]])
    yield Reader(
        folder, tmp_path, platform.environ | {"PATH": path, "SEAMLESSFLOW_HOME": str(platform.home.root)}
    )
    with platform.client() as client:
        for job in client.job_list():
            if job["ended_at"] is None:
                client.job_edit(job["id"], "cancel")


def of(document: str) -> list[Snippet]:
    found = [snippet for snippet in RUN if snippet.document == document]
    assert found
    return found


def test_each_document_with_something_to_run_has_a_test() -> None:
    assert {one.document for one in RUN} == {"README.md", "docs/automation.md", "docs/external-agents.md"}


def test_the_readme_leads_from_a_checkout_to_a_trained_policy(
    reader: Reader, platform: PlatformProcess, tmp_path: Path
) -> None:
    """The checkout is played by a folder whose `.seamlessflow` is the running installation."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / ".seamlessflow").symlink_to(platform.home.root)
    environment = platform.home.root / "venvs" / "app"
    environment.parent.mkdir(exist_ok=True)
    if not environment.exists():
        environment.symlink_to(sys.prefix)
    del reader.environ["SEAMLESSFLOW_HOME"]
    first, *others = of("README.md")

    reader.follow(Snippet("", 0, "sh", f"cd {checkout}"))
    reader.follow(first)
    for snippet in others:
        reader.follow(snippet)

    with platform.client() as client:
        job = next(job for job in client.job_list() if job["name"] == "my agent")
        assert job["state"] == "completed"
        assert any(one["name"] == "by curl" for one in client.job_list())


def test_the_guide_to_automation_runs(reader: Reader, platform: PlatformProcess, model_root: Path) -> None:
    spec = calculator_spec(model_root, num_updates=1, groups_per_batch=2)
    (reader.folder / "job.yaml").write_text(yaml.safe_dump(spec))
    reader.environ |= {"SEAMLESSFLOW_WEB_URL": web_url(platform), "SEAMLESSFLOW_TOKEN": platform.token}
    with platform.client() as client:
        waiting = client.job_submit(spec | {"placement": {"rollout": ["unheard-of"]}})["id"]

        for snippet in of("docs/automation.md"):
            reader.follow(snippet, **({"JOB": waiting} if "queue" in snippet.code else {}))

        assert client.job_get(waiting)["priority"] == 10
    assert (reader.folder / "trained" / "config.json").exists()


def test_the_guide_for_external_agents_runs(reader: Reader) -> None:
    for snippet in of("docs/external-agents.md"):
        reader.follow(snippet)

    said = "".join(reader.output)
    assert '"usage"' in said
    assert "error" not in said.lower()
