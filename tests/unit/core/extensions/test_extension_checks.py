"""What a submitted spec may name: built-in and installed extensions, with options that they
accept."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.core.extensions.declarations import (
    AdvantageExtension,
    EnvironmentExtension,
    ExtensionOptions,
    Extensions,
    RewardExtension,
)
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec, job_spec_parse
from seamlessflow.core.spec_submission import submitted_spec_parse


class BoardOptions(ExtensionOptions):
    size: Annotated[int, Field(ge=3, le=19)] = 9


CHESS = EnvironmentExtension(summary="", factory="boards:chess", options=BoardOptions, gives_answer=True)
SILENT = EnvironmentExtension(summary="", factory="boards:silent")
RANK = AdvantageExtension(summary="", factory="boards:rank")
GLOBAL = AdvantageExtension(summary="", factory="boards:global", is_group_relative=False)
INSTALLED = Extensions(
    environments={**BUILT_IN.environments, "chess": CHESS, "silent": SILENT},
    advantages={"rank": RANK, "global": GLOBAL},
    rewards={**BUILT_IN.rewards, "judge": RewardExtension(summary="", factory="boards:judge")},
)


def submitted(environment: dict[str, Any], **sections: Any) -> dict[str, Any]:
    tasks = {"tasks": "artifact://art_1"}
    return {
        "name": "a",
        "model": {"source": "artifact://art_0"},
        "environment": tasks | environment,
    } | sections


def problems(
    environment: dict[str, Any], extensions: Extensions = INSTALLED, **sections: Any
) -> dict[str, str]:
    with pytest.raises(InvalidJobSpec) as caught:
        submitted_spec_parse(submitted(environment, **sections), extensions)
    return {problem.field: problem.detail for problem in caught.value.problems}


def parse(environment: dict[str, Any], **sections: Any) -> JobSpec:
    return submitted_spec_parse(submitted(environment, **sections), INSTALLED)


def test_installed_names_are_accepted_and_their_options_filled_in() -> None:
    spec = parse({"name": "chess", "reward": "judge"}, algorithm={"advantage": "rank"})

    assert spec.environment.options == {"size": 9}
    assert (spec.environment.reward, spec.algorithm.installed_advantage) == ("judge", "rank")
    assert job_spec_parse(spec.model_dump(mode="json")) == spec


def test_unknown_names_are_refused_with_their_value_and_the_accepted_names() -> None:
    found = problems({"name": "ches", "reward": "taste"}, algorithm={"advantage": "rnk"})

    assert found["environment.name"].startswith(
        "'ches' is not installed here; did you mean 'chess'? accepted: "
    )
    assert "arithmetic, calculator, chess, command, external, none, silent" in found["environment.name"]
    assert found["environment.reward"].endswith("accepted: exact_answer, judge")
    assert found["algorithm.advantage"].endswith("mode_aware, one, gae, global, rank")


def test_a_submitter_cannot_make_the_platform_import_anything() -> None:
    for name in ("os:system", "boards:chess", "../chess", "builtins"):
        assert "is not installed here" in problems({"name": name})["environment.name"]


def test_unknown_names_are_reported_together_with_all_other_errors() -> None:
    found = problems({"name": "go"}, train={"zero_stage": 9})

    assert set(found) == {"environment.name", "train.zero_stage"}


@pytest.mark.parametrize("name", [7, None, "", "x" * 65])
def test_an_invalid_name_is_refused_in_one_sentence(name: Any) -> None:
    assert "must be a name" in problems({"name": name})["environment.name"]
    assert (
        "must be a name" in problems({"name": "chess"}, algorithm={"advantage": name})["algorithm.advantage"]
    )


def test_options_are_checked_against_the_extensions_declaration() -> None:
    assert (
        "did you mean 'size'"
        in problems({"name": "chess", "options": {"sise": 9}})["environment.options.sise"]
    )
    assert "got 2" in problems({"name": "chess", "options": {"size": 2}})["environment.options.size"]
    assert (
        "unknown key" in problems({"name": "calculator", "options": {"size": 9}})["environment.options.size"]
    )
    found = problems({"name": "chess"}, algorithm={"advantage": "rank", "advantage_options": {"a": 1}})
    assert "unknown key" in found["algorithm.advantage_options.a"]


@pytest.mark.parametrize(
    "environment, algorithm, field, words",
    [
        ({"name": "silent", "reward": "judge"}, {}, "environment.reward", "calculator, chess"),
        (
            {"name": "external", "tasks": None, "reward": "judge"},
            {},
            "environment",
            "reward: the platform runs no",
        ),
        ({"name": "chess", "reward_options": {"a": 1}}, {}, "environment", "name it in reward"),
        ({"name": "chess"}, {"advantage_options": {"a": 1}}, "algorithm", "group is built in"),
        ({"name": "chess"}, {"advantage": "rank", "kl_placement": "reward"}, "algorithm", "use 'loss'"),
        (
            {"name": "chess"},
            {"advantage": "global", "sampling": {"dynamic": True}},
            "algorithm.sampling.dynamic",
            "global advantages",
        ),
    ],
)
def test_meaningless_combinations_are_refused(
    environment: dict[str, Any], algorithm: dict[str, Any], field: str, words: str
) -> None:
    assert words in problems(environment, algorithm=algorithm)[field]


def test_a_stored_spec_loads_after_its_extension_is_gone() -> None:
    stored = parse({"name": "chess"}).model_dump(mode="json")

    assert job_spec_parse(stored).environment.name == "chess"
    assert "environment.name" in problems(stored["environment"], BUILT_IN)
