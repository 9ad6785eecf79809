"""The Helm chart, rendered by Helm's own code and checked against Kubernetes' schemas, and what it
must never contain."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixtures.deploy_tools import DeployTools
from tests.fixtures.repository import ROOT

CHART = ROOT / "deploy" / "helm" / "seamlessflow"
OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.27", "1.37"
SECRETS: dict[str, Any] = {
    "planes": {
        "secretKey": "k" * 64,
        "databaseUrl": "postgresql://flow:pw@db:5432/flow?sslmode=require",
        "backgroundBrokerUrl": "rediss://:pw@valkey:6379/0",
        "eventsUrl": "rediss://:pw@valkey:6379/1",
    },
    "workers": {"joinToken": "j" * 40, "brokerUrl": "rediss://:pw@doorbells:6379/0"},
}
GPU_NODES = {
    "name": "gpu",
    "kind": "DaemonSet",
    "tags": ["rollout", "train"],
    "gpus": 8,
    "imageTag": "0.1.0-cuda",
    "shmSize": "64Gi",
    "resources": {"requests": {"cpu": 16, "memory": "128Gi"}},
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
EVERYTHING: dict[str, Any] = {
    "secrets": SECRETS,
    "image": {"registry": "registry.example.org/sf", "pullSecrets": ["pull"]},
    "allowedHosts": ["other.example.org"],
    "models": {"existingClaim": "models"},
    "artifacts": {"storageClass": "nfs"},
    "workers": [GPU_NODES],
    "ingress": {"gatewayHost": "gateway.example.org"},
    "podAnnotations": {"team": "rl"},
    "nodeSelector": {"pool": "planes"},
    "tolerations": [{"key": "planes", "operator": "Exists"}],
}
EXISTING = {"secrets": {"planes": {"existing": "mine"}, "workers": {"existing": "theirs"}}}


def ask(tools: DeployTools, values: dict[str, Any], kubernetes: str = NEWEST_KUBERNETES) -> dict[str, Any]:
    return tools.ask_helm({"chart": str(CHART), "values": values, "kubernetes": kubernetes})


def manifests(answer: dict[str, Any]) -> list[dict[str, Any]]:
    texts = (text for name, text in answer["rendered"].items() if not name.endswith(".txt"))
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in found:
        if template := manifest.get("spec", {}).get("template"):
            yield manifest["metadata"]["name"], template["spec"]


@pytest.mark.parametrize("kubernetes", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
@pytest.mark.parametrize(
    "values", [{"secrets": SECRETS}, EVERYTHING, EXISTING], ids=["defaults", "everything", "existing"]
)
def test_the_chart_renders_lints_and_fits_the_schemas(
    deploy_tools: DeployTools, values: dict[str, Any], kubernetes: str
) -> None:
    answer = ask(deploy_tools, values, kubernetes)

    assert answer.get("error") is None
    assert answer["invalid"] == {}
    assert answer["lint"]["errors"] == []
    assert [message for message in answer["lint"]["messages"] if message["severity"] > 1] == []


def test_the_chart_has_every_plane_a_stand_by_a_migration_hook_and_no_privileges(
    deploy_tools: DeployTools,
) -> None:
    found = manifests(ask(deploy_tools, EVERYTHING))
    by_name = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in found}

    assert {"flow-web", "flow-scheduler", "flow-background", "flow-beat", "flow-gateway"} == {
        name for kind, name in by_name if kind == "Deployment"
    }
    assert by_name["Deployment", "flow-scheduler"]["spec"]["replicas"] == 2
    assert by_name["PodDisruptionBudget", "flow-scheduler"]["spec"]["minAvailable"] == 1
    assert "pre-upgrade" in by_name["Job", "flow-migrations"]["metadata"]["annotations"]["helm.sh/hook"]
    assert by_name["DaemonSet", "flow-gpu"]["spec"]["template"]["spec"]["containers"][0]["resources"][
        "limits"
    ] == {"nvidia.com/gpu": 8}
    for name, pod in pods(found):
        (container,) = pod["containers"]
        if name == "flow-agents":
            continue
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["automountServiceAccountToken"] is False, name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert container["resources"]["requests"], name
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}, name


def test_agents_mount_no_artifacts_and_their_supervisor_can_give_each_session_a_user(
    deploy_tools: DeployTools,
) -> None:
    (agents,) = (pod for name, pod in pods(manifests(ask(deploy_tools, EXISTING))) if name == "flow-agents")
    (container,) = agents["containers"]

    assert {mount["name"] for mount in container["volumeMounts"]} == {"home", "shm"}
    assert {volume["name"] for volume in agents["volumes"]} == {"home", "shm"}
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert {"SETUID", "SETGID"} <= set(container["securityContext"]["capabilities"]["add"])
    assert agents["securityContext"]["runAsUser"] == 0
    assert agents["automountServiceAccountToken"] is False


def test_blocked_planes_are_restarted_and_an_unavailable_database_ends_none(
    deploy_tools: DeployTools,
) -> None:
    probes = {
        name: (container["livenessProbe"], container["readinessProbe"])
        for name, pod in pods(manifests(ask(deploy_tools, EXISTING)))
        if name in ("flow-web", "flow-gateway")
        for container in pod["containers"]
    }
    assert set(probes) == {"flow-web", "flow-gateway"}
    for name, (liveness, readiness) in probes.items():
        assert liveness.get("httpGet", {}).get("path") == "/livez", f"{name}: a port opens without a loop"
        assert readiness["httpGet"]["path"] == "/healthz", name


def test_gateways_tell_the_service_and_reach_one_another_by_pod(deploy_tools: DeployTools) -> None:
    found = manifests(ask(deploy_tools, EXISTING | {"gateway": {"replicas": 3}}))
    by_name = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in found}
    gateway = by_name["Deployment", "flow-gateway"]["spec"]
    given = {one["name"]: one for one in gateway["template"]["spec"]["containers"][0]["env"]}

    assert gateway["replicas"] == 3
    assert gateway["strategy"]["type"] == "RollingUpdate"
    assert given["SEAMLESSFLOW_GATEWAY_URL"]["value"] == "http://flow-gateway:8100"
    assert given["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert given["SEAMLESSFLOW_GATEWAY_PEER_URL"]["value"] == "http://$(POD_IP):8100"
    assert list(given).index("POD_IP") < list(given).index("SEAMLESSFLOW_GATEWAY_PEER_URL")
    assert by_name["PodDisruptionBudget", "flow-gateway"]["spec"]["minAvailable"] == 1


def test_machines_get_no_secret_of_the_planes(deploy_tools: DeployTools) -> None:
    found = manifests(ask(deploy_tools, EXISTING))
    workers = [pod for name, pod in pods(found) if name in ("flow-alpha", "flow-agents")]

    assert len(workers) == 2
    for pod in workers:
        given = pod["containers"][0]["env"]
        named = {
            entry["valueFrom"]["secretKeyRef"]["name"]
            for entry in given
            if "secretKeyRef" in entry.get("valueFrom", {})
        }
        assert named == {"theirs"}
        assert {entry["name"] for entry in given}.isdisjoint(
            {"DATABASE_URL", "SEAMLESSFLOW_SECRET_KEY", "EVENTS_URL"}
        )


def test_secrets_appear_only_in_secrets(deploy_tools: DeployTools) -> None:
    rendered = ask(deploy_tools, {"secrets": SECRETS})["rendered"]
    secret = SECRETS["planes"]["secretKey"]
    holding = {
        name
        for name, text in rendered.items()
        if secret in text or base64.b64encode(secret.encode()).decode() in text
    }

    assert holding == {"seamlessflow/templates/secrets.yaml"}


@pytest.mark.parametrize(
    "values,named",
    [
        ({}, "secretKey is needed"),
        ({"secrets": SECRETS, "webUrl": "http://flow.example.org"}, "webUrl"),
        ({"secrets": SECRETS, "allowedHosts": ["*"]}, "allowedHosts"),
        ({"secrets": SECRETS, "gateway": {"replicas": 0}}, "replicas"),
        ({"secrets": SECRETS, "wbe": {"replicas": 2}}, "wbe"),
        ({"secrets": SECRETS, "workers": [GPU_NODES | {"tags": ["Roll Out"]}]}, "tags"),
        ({"secrets": SECRETS, "workers": [GPU_NODES | {"kind": "StatefulSet"}]}, "replicas"),
        ({"secrets": SECRETS, "workers": [GPU_NODES | {"tags": ["agent", "train"]}]}, "a pool of their own"),
        ({"secrets": SECRETS | {"workers": {"joinToken": "short", "brokerUrl": "redis://h"}}}, "joinToken"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_by_name(
    deploy_tools: DeployTools, values: dict[str, Any], named: str
) -> None:
    answer = ask(deploy_tools, values)

    assert named in answer["error"]


def test_the_notes_say_how_to_sign_in(deploy_tools: DeployTools) -> None:
    notes = ask(deploy_tools, {"secrets": SECRETS})["rendered"]["seamlessflow/templates/NOTES.txt"]

    assert "exec deploy/flow-web -- python -m django create_sign_in_link" in notes
    assert "alpha: 1, tags rollout,train" in notes
