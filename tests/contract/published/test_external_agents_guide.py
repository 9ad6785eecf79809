"""docs/external-agents.md is true to the published gateway API: its code compiles, its routes and fields exist."""

import json
import re
from typing import Any

import yaml

from seamlessflow.core.job_spec import JobSpec
from tests.fixtures.external_agents_guide import GUIDE, guide_code
from tests.fixtures.repository import ROOT

GATEWAY: dict[str, Any] = json.loads((ROOT / "api_schema" / "gateway.openapi.json").read_text())
TYPES = GATEWAY["components"]["schemas"]


def test_python_of_the_guide_compiles() -> None:
    compile(guide_code("python"), "docs/external-agents.md", "exec")


def test_routes_of_the_guide_are_published() -> None:
    named = set(re.findall(r"(?<=[/\w])?/v1/(?:sessions|models)[\w/{}$'\[\]]*", GUIDE))
    routes = {re.sub(r"\$SESSION|\{session\['session'\]\}", "{session}", name) for name in named}

    assert routes >= {
        "/v1/sessions",
        "/v1/sessions/{session}/reward",
        "/v1/sessions/{session}/close",
        "/v1/models",
    }
    assert routes <= GATEWAY["paths"].keys()
    assert "$BASE_URL/chat/completions" in GUIDE
    assert "/v1/chat/completions" in GATEWAY["paths"]


def test_bodies_of_the_guide_have_the_published_fields() -> None:
    sent = re.findall(r"-d '(\{.*\})'$", guide_code("sh"), re.MULTILINE)
    bodies = [json.loads(body.replace("'$JOB'", "job_x")) for body in sent]
    opened = json.loads(re.findall(r"^# (\{.*\})$", guide_code("sh"), re.M)[0])

    for body, name in zip(
        [*bodies, opened], ("SessionOpen", "ChatBody", "RewardReport", "SessionOpened"), strict=True
    ):
        assert body.keys() <= TYPES[name]["properties"].keys(), name
    assert opened.keys() == TYPES["SessionOpened"]["properties"].keys()
    for field in re.findall(r'session\["(\w+)"\]', guide_code("python")):
        assert field in opened


def test_codes_of_the_guide_are_published() -> None:
    said = " ".join(
        answer["description"]
        for methods in GATEWAY["paths"].values()
        for operation in methods.values()
        for answer in operation["responses"].values()
    )
    operations = [operation for methods in GATEWAY["paths"].values() for operation in methods.values()]
    for status, codes in re.findall(r"^\| (\d{3})((?: `?[\w`, ]+)?) \|", GUIDE, re.MULTILINE):
        assert any(status in operation["responses"] for operation in operations), status
        for code in re.findall(r"`(\w+)`", codes):
            assert f"`{code}`" in said, code


def test_job_of_the_guide_is_a_job_spec() -> None:

    assert JobSpec.model_validate(yaml.safe_load(guide_code("yaml"))).environment.name == "external"
