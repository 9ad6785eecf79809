"""The Grafana dashboard, the alerts and the scrape configuration name only what the planes really
expose."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from django.test import Client
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane import metrics as gateway_metrics
from tests.fixtures.control_plane import Cast, phase_make, worker_make
from tests.fixtures.repository import ROOT

FOLDER = ROOT / "deploy" / "observability"
BOARDS = sorted(FOLDER.glob("*.json"))
NAME = re.compile(r"\b(?:seamlessflow|process|vllm:)\w*")
LABELS = re.compile(r"(\w+)\{([^}]*)\}|by \(([^)]*)\) \((?:\w+\()?(\w+)")
OF_PROMETHEUS = {"le", "job", "instance"}


def board_expressions(path: Path) -> Iterator[str]:
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


def alert_expressions() -> Iterator[str]:
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


@pytest.fixture
def exposed(cast: Cast) -> dict[str, set[str]]:
    """Return sample name → labels, of both planes, with at least one sample of each family."""
    phase_make(cast.job(is_running=True), worker_make("beta", "rollout").machine, Role.ROLLOUT)
    gateway_metrics.RETRIES.labels("stored").inc(0)
    gateway_metrics.DRIFTS.labels("clean").inc(0)
    gateway_metrics.REFUSALS.labels("429").inc(0)
    gateway_metrics.FORWARDED.labels("session").inc(0)
    Client().get("/healthz")  # a request to count
    page = Client().get("/metrics").content.decode() + generate_latest(gateway_metrics.REGISTRY).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("source", [*BOARDS, FOLDER / "alerts.yaml"], ids=lambda path: path.name)
def test_every_metric_and_label_in_use_exists(source: Path, exposed: dict[str, set[str]]) -> None:
    expressions = list(alert_expressions() if source.suffix == ".yaml" else board_expressions(source))

    assert expressions
    for expression in expressions:
        names = {name for name in NAME.findall(expression) if name != "seamlessflow" and "-" not in name}
        for name in names:
            assert name in exposed, f"{name}, in {expression}"
        for selected, matchers, grouped, metric in LABELS.findall(expression):
            wanted = {label.split("=")[0].rstrip("!~ ") for label in matchers.split(",") if "=" in label}
            wanted |= {label.strip() for label in grouped.split(",") if label.strip()}
            of_metric = exposed.get(selected or metric)
            if of_metric is not None:
                assert wanted <= of_metric | OF_PROMETHEUS, expression


def test_the_dashboard_shows_every_metric_of_the_gateway(exposed: dict[str, set[str]]) -> None:
    """A new metric belongs on the dashboard, or in this list with a reason."""
    asked = " ".join(expression for path in BOARDS for expression in board_expressions(path))
    families = {
        re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in exposed if "gateway" in name
    }

    assert {family for family in families if family not in asked} == set()


def test_the_scrape_configuration_names_what_compose_starts() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    services = yaml.safe_load((FOLDER.parent / "compose" / "compose.yaml").read_text())["services"]

    for job in config["scrape_configs"]:
        (target,) = job["static_configs"][0]["targets"]
        name, _, port = target.partition(":")
        assert services[name]["ports"][0].endswith(f":{port}")
    assert all((FOLDER / rules).exists() for rules in config["rule_files"])


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_the_dashboard_is_complete(path: Path) -> None:
    board = json.loads(path.read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]

    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["datasource"]["uid"] == "${datasource}"
