"""The examples of deployments: rendered, linted, as committed, and with the store's key where it belongs."""

from pathlib import Path

import pytest

from tests.fixtures.deploy_tools import DeployTools
from tests.fixtures.rendered_examples import NAMES, answer_of, rendered, rendered_file
from tests.fixtures.repository import ROOT
from tests.integration.deploy.test_deploy_chart import SECRETS, ask, manifests, pods
from tests.integration.deploy.test_deploy_compose import env_file, services

__all__ = ["env_file"]

STORE = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
IN_S3 = {"root": "s3://bucket/prefix", "accessKeyId": "key", "secretAccessKey": "hush-hush"}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_renders_as_committed_and_fits_the_schemas(deploy_tools: DeployTools, name: str) -> None:
    answer = answer_of(deploy_tools, name)

    assert answer.get("error") is None
    assert answer["invalid"] == {}
    assert answer["lint"]["errors"] == []
    assert rendered(answer) == rendered_file(name).read_text(), (
        "run python -m tests.fixtures.rendered_examples"
    )


def test_four_nodes_have_32_gpus_and_no_shared_volume(deploy_tools: DeployTools) -> None:
    found = manifests(answer_of(deploy_tools, "four-nodes"))
    num_gpus = sum(
        one["spec"]["replicas"] * int(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        for one in found
        if one["kind"] == "StatefulSet"
        and "nvidia.com/gpu"
        in (pod := one["spec"]["template"]["spec"])["containers"][0]["resources"]["limits"]
    )

    assert num_gpus == 32
    assert not [one for one in found if one["kind"] == "PersistentVolumeClaim"]
    assert not [name for name, pod in pods(found) for one in pod["volumes"] if "persistentVolumeClaim" in one]


def test_with_objects_everyone_but_agents_gets_the_store_and_its_key_is_only_in_a_secret(
    deploy_tools: DeployTools,
) -> None:
    answer = ask(deploy_tools, {"secrets": SECRETS, "artifacts": {"s3": IN_S3}})
    assert answer.get("error") is None
    assert answer["invalid"] == {}
    found = manifests(answer)
    given = {name: {one["name"] for one in pod["containers"][0]["env"]} for name, pod in pods(found)}

    assert {name for name, names in given.items() if names >= STORE} == given.keys() - {"flow-agents"}
    assert not STORE & given["flow-agents"]
    assert "ARTIFACT_ROOT" not in given["flow-agents"]
    accounts = {name: pod["serviceAccountName"] for name, pod in pods(found)}
    assert accounts.pop("flow-agents") == "flow-agents"
    assert set(accounts.values()) == {"flow"}
    holding = {name for name, text in answer["rendered"].items() if "hush-hush" in text}
    assert holding == {"seamlessflow/templates/secrets.yaml"}


def test_credentials_in_a_root_are_refused(deploy_tools: DeployTools) -> None:
    answer = ask(deploy_tools, {"secrets": SECRETS, "artifacts": {"s3": {"root": "s3://key:hush@bucket"}}})
    assert "artifacts" in answer["error"]
    assert "root" in answer["error"]


def test_the_role_of_a_service_account_is_not_that_of_agents(deploy_tools: DeployTools) -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/flow"}
    found = manifests(ask(deploy_tools, {"secrets": SECRETS, "serviceAccount": {"annotations": role}}))
    accounts = {
        one["metadata"]["name"]: one["metadata"].get("annotations", {})
        for one in found
        if one["kind"] == "ServiceAccount"
    }
    assert role.items() <= accounts["flow"].items()
    assert not role.items() & accounts["flow-agents"].items()


def test_compose_with_objects_gives_the_store_to_everyone_but_agents(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    env_file.write_text(
        env_file.read_text()
        + "ARTIFACT_ROOT=s3://bucket/prefix\nS3_ENDPOINT=https://s3.example.org\n"
        + "S3_ACCESS_KEY_ID=key\nS3_SECRET_ACCESS_KEY=hush-hush\n"
    )
    loaded = services(deploy_tools, env_file, "compose.s3.yaml")
    given = {name for name, one in loaded.items() if one["environment"].get("AWS_SECRET_ACCESS_KEY")}

    assert given == {
        "migrate", "web", "scheduler", "background", "beat", "gateway", "worker-alpha", "worker-beta",
    }  # fmt: skip
    assert {loaded[name]["environment"]["ARTIFACT_ROOT"] for name in given} == {"s3://bucket/prefix"}
    gateway = {one["target"]: one.get("read_only", False) for one in loaded["gateway"]["volumes"]}
    assert gateway["/artifacts"] is False, "its cache is there"


def test_compose_gives_one_machine_the_eight_gpus_of_the_node(
    deploy_tools: DeployTools, env_file: Path
) -> None:
    loaded = services(deploy_tools, env_file, "../examples/one-node.compose.yaml")
    (device,) = loaded["worker-alpha"]["deploy"]["resources"]["reservations"]["devices"]

    assert device["device_ids"] == [str(number) for number in range(8)]
    assert loaded["worker-alpha"]["build"]["args"]["VARIANT"] == "cuda"
    assert loaded["worker-beta"]["deploy"]["replicas"] == 0


def test_the_cuda_image_has_vllm_in_an_environment_beside_ours() -> None:
    text = (ROOT / "deploy" / "images" / "worker.Dockerfile").read_text()
    assert '"vllm==0.32.0"' in text
    assert "COPY --from=application /opt/vllm /opt/vllm" in text
