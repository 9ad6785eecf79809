"""Which algorithms accept groups of one session."""

import json
from typing import Any

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec, job_spec_parse
from tests.fixtures.repository import ROOT


def problem(algorithm: dict[str, Any]) -> str | None:
    """Return what is wrong with groups of one session; None if they are accepted."""
    spec = {
        "name": "one",
        "model": {"source": "/models/m"},
        "environment": {"name": "external"},
        "train": {"num_updates": 1},
        "rollout": {"group_size": 1},
        "algorithm": algorithm,
    }
    try:
        job_spec_parse(spec)
    except InvalidJobSpec as error:
        return "; ".join(f"{found.field}: {found.detail}" for found in error.problems)
    return None


@pytest.mark.parametrize("name", ["ppo", "reinforce_plus_plus", "sft"])
def test_algorithms_that_compare_nothing_within_a_group_accept_one_session(name: str) -> None:
    assert problem({"name": name}) is None


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "grpo"},
        {"name": "dapo"},
        {"name": "rloo"},
        {"name": "reinforce_plus_plus_baseline"},
    ],
)
def test_algorithms_that_compare_a_group_refuse_one_session(algorithm: dict[str, Any]) -> None:
    found = problem(algorithm)
    assert found is not None
    assert found.startswith("rollout.group_size: must be at least 2, got 1")


def test_the_form_offers_groups_of_one_session() -> None:
    schema = json.loads((ROOT / "api_schema" / "job_spec.schema.json").read_text())
    assert schema["$defs"]["RolloutSection"]["properties"]["group_size"]["minimum"] == 1
