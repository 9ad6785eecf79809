"""The compose file, loaded by Docker Compose itself; the Dockerfiles, linted; and what both must
never do."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.deploy_tools import DeployTools
from tests.fixtures.repository import ROOT

COMPOSE = ROOT / "deploy" / "compose"
IMAGES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
# The planes hold the database's address and the key that signs credentials; machines hold neither.
SECRETS_OF_PLANES = {"DATABASE_URL", "EVENTS_URL", "BACKGROUND_BROKER_URL", "SEAMLESSFLOW_SECRET_KEY"}
SECRET = re.compile(r"^(\w*(?:SECRET_KEY|TOKEN|PASSWORD))=$", re.MULTILINE)
AGENT_CAPABILITIES = ["SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE"]
OURS = {
    "migrate",
    "web",
    "scheduler",
    "background",
    "beat",
    "gateway",
    "worker-alpha",
    "worker-beta",
    "worker-agents",
}
PINNED = re.compile(r".+:[^:@]*\d[^:@]*$|.+@sha256:[0-9a-f]{64}$")


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    """The example, filled in as its comments say."""
    example = (COMPOSE / ".env.example").read_text()
    path = tmp_path / "env"
    path.write_text(
        SECRET.sub(lambda found: f"{found[1]}={found[1].lower()}-0123456789abcdef0123456789", example)
    )
    return path


def config(tools: DeployTools, env_file: Path, *more: str) -> tuple[int, str, str]:
    files = [part for name in ("compose.yaml", *more) for part in ("-f", str(COMPOSE / name))]
    done = tools.run(
        "docker-compose",
        *files,
        "--env-file",
        str(env_file),
        "config",
        "--format",
        "json",
        environ={"PATH": os.defpath},
    )
    return done.returncode, done.stdout, done.stderr


def services(tools: DeployTools, env_file: Path, *more: str) -> dict[str, dict[str, Any]]:
    status, output, errors = config(tools, env_file, *more)
    assert status == 0, errors
    loaded: dict[str, dict[str, Any]] = json.loads(output)["services"]
    return loaded


def test_compose_loads_the_file_with_its_example_environment(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    loaded = services(deploy_tools, env_file)

    assert loaded.keys() == OURS | {"postgres", "valkey", "doorbells"}
    assert loaded["worker-alpha"]["command"][:4] == ["--name", "alpha", "--tags", "rollout,train"]
    assert loaded["scheduler"]["deploy"]["replicas"] == 2


def test_tags_of_machines_come_from_the_environment(deploy_tools: DeployTools, env_file: Path) -> None:
    env_file.write_text(env_file.read_text() + "\nWORKER_BETA_TAGS=rollout,big\n")

    assert services(deploy_tools, env_file)["worker-beta"]["command"][3] == "rollout,big"


def test_the_gpu_override_gives_each_machine_its_own_device(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    loaded = services(deploy_tools, env_file, "compose.gpu.yaml")
    devices = [
        loaded[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for name in ("worker-alpha", "worker-beta")
    ]

    assert devices == [["0"], ["1"]]


@pytest.mark.parametrize(
    "secret", ["SEAMLESSFLOW_SECRET_KEY", "SEAMLESSFLOW_JOIN_TOKEN", "POSTGRES_PASSWORD"]
)
def test_a_missing_secret_is_named_and_nothing_starts(
    deploy_tools: DeployTools, env_file: Path, secret: str
) -> None:
    kept = [line for line in env_file.read_text().splitlines() if not line.startswith(f"{secret}=")]
    env_file.write_text("\n".join(kept))

    status, _, errors = config(deploy_tools, env_file)

    assert status != 0
    assert secret in errors
    assert "set it in .env" in errors


def test_our_containers_are_unprivileged_read_only_restarted_and_checked(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    loaded = services(deploy_tools, env_file)

    for name in OURS:
        service = loaded[name]
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) == (AGENT_CAPABILITIES if name == "worker-agents" else []), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] in ("unless-stopped", "on-failure:5"), name
    checked = {name for name, service in loaded.items() if "healthcheck" in service}
    assert checked >= {"postgres", "valkey", "doorbells", "web", "gateway", "scheduler", "background"}
    for name, service in loaded.items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name


def test_machines_can_neither_reach_the_database_nor_know_secrets_of_the_planes(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    loaded = services(deploy_tools, env_file)
    data = set(loaded["postgres"]["networks"]) | set(loaded["valkey"]["networks"])

    for name in ("worker-alpha", "worker-beta", "worker-agents"):
        assert loaded[name]["environment"].keys().isdisjoint(SECRETS_OF_PLANES), name
        assert data.isdisjoint(loaded[name]["networks"]), name
        assert "doorbell_password" in loaded[name]["environment"]["BROKER_URL"], name


def test_agents_mount_no_artifacts_and_their_supervisor_can_give_each_session_a_user(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    agents = services(deploy_tools, env_file)["worker-agents"]

    assert [volume["target"] for volume in agents["volumes"]] == ["/var/lib/seamlessflow"]
    assert agents["user"] == "0:0"
    assert set(agents["cap_add"]) >= {"SETUID", "SETGID"}


def test_third_party_images_are_pinned(deploy_tools: DeployTools, env_file: Path) -> None:
    loaded = services(deploy_tools, env_file)

    for name in loaded.keys() - OURS:
        assert PINNED.match(loaded[name]["image"]), name


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_hadolint_finds_no_fault_in_the_dockerfiles(deploy_tools: DeployTools, path: Path) -> None:
    done = deploy_tools.run("hadolint", "--no-color", "-c", str(path.with_name("hadolint.yaml")), str(path))

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_each_dockerfile_pins_its_base_and_ends_as_an_ordinary_user_without_build_tools(path: Path) -> None:
    text = path.read_text()
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    last_stage = text[text.rindex("\nFROM ") :]

    assert PINNED.match(base)
    assert re.search(r"^USER 10001:10001$", last_stage, re.MULTILINE)
    assert "python3-venv" not in last_stage
    assert "pip install" not in last_stage
    assert "pip uninstall -y -q pip" in text
