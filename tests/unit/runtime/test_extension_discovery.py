"""Extensions are found by their entry points; a broken one is reported in one sentence and never
ends the process."""

import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.core.extensions.declarations import (
    ADVANTAGES,
    ENVIRONMENTS,
    REWARDS,
    AdvantageExtension,
    EnvironmentExtension,
    ExtensionOptions,
    Extensions,
    RewardExtension,
)
from seamlessflow.runtime.extensions import (
    UnusableExtension,
    extensions_discover,
    options_load,
)
from seamlessflow.runtime.installed_estimators import estimator_make

MODULE = "boards_of_a_third_party"


class Open(ExtensionOptions, extra="allow"):
    """Accepts anything."""


class Shift:
    """An estimator that returns what a test wants."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def of_group(self, rewards: Any) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def of_batch(self, advantages: Any, num_tokens: Any) -> Any:
        return advantages


def environment(**fields: Any) -> EnvironmentExtension:
    return EnvironmentExtension(**{"summary": "", "factory": f"{MODULE}:make", **fields})


@pytest.fixture
def module() -> Iterator[Any]:
    """Create a third party's module that can be imported."""
    made: Any = types.ModuleType(MODULE)
    sys.modules[MODULE] = made
    yield made
    del sys.modules[MODULE]


def point(name: str, value: str, group: str = ENVIRONMENTS) -> EntryPoint:
    return EntryPoint(name, f"{MODULE}:{value}", group)


def test_declarations_of_all_kinds_are_found_beside_the_built_in_ones(module: Any) -> None:
    module.CHESS = environment()
    module.RANK = AdvantageExtension(summary="", factory="a:b")
    module.JUDGE = RewardExtension(summary="", factory="a:b")

    found = extensions_discover(
        [point("chess", "CHESS"), point("rank", "RANK", ADVANTAGES), point("judge", "JUDGE", REWARDS)]
    )

    assert found.problems == ()
    assert found.extensions.environments == {**BUILT_IN.environments, "chess": module.CHESS}
    assert found.extensions.advantages == {"rank": module.RANK}
    assert found.extensions.rewards["judge"] is module.JUDGE


@pytest.mark.parametrize(
    "declared, words",
    [
        ("not a declaration", "has the type str; accepted: EnvironmentExtension"),
        (
            RewardExtension(summary="", factory="a:b"),
            "has the type RewardExtension; accepted: EnvironmentExtension",
        ),
        (environment(options=dict), "must be a class that extends ExtensionOptions"),
        (environment(options=Open), "Open must forbid unknown keys"),
        (environment(factory="boards"), "factory must name a callable"),
        (environment(factory=print), "factory must name a callable"),
    ],
)
def test_an_unsound_declaration_counts_as_not_installed(module: Any, declared: Any, words: str) -> None:
    module.CHESS, module.GO = declared, environment()

    found = extensions_discover([point("chess", "CHESS"), point("go", "GO")])

    (problem,) = found.problems
    assert problem.startswith("seamlessflow.environments: 'chess' counts as not installed: ")
    assert words in problem
    assert set(found.extensions.environments) == {*BUILT_IN.environments, "go"}


@pytest.mark.parametrize("name", ["calculator", "external", "none"])
def test_a_built_in_name_cannot_be_taken(module: Any, name: str) -> None:
    module.CHESS = environment()

    found = extensions_discover([point(name, "CHESS")])

    assert "the name is built in" in found.problems[0]
    assert found.extensions.environments == BUILT_IN.environments


def test_built_in_advantages_and_rewards_cannot_be_taken_either(module: Any) -> None:
    points = [point("group", "A", ADVANTAGES), point("exact_answer", "A", REWARDS)]

    assert all("the name is built in" in problem for problem in extensions_discover(points).problems)


@pytest.mark.parametrize("name", ["Chess", "9x9", "a b", "x" * 65, ""])
def test_a_name_outside_the_grammar_is_refused(module: Any, name: str) -> None:
    module.CHESS = environment()

    assert "its name must begin" in extensions_discover([point(name, "CHESS")]).problems[0]


def test_two_packages_that_declare_the_same_name_are_both_refused(module: Any) -> None:
    module.A, module.B = environment(), environment()

    found = extensions_discover([point("chess", "A"), point("chess", "B")])

    assert "several packages claim it" in found.problems[0]
    assert "chess" not in found.extensions.environments


@pytest.mark.parametrize(
    "body", ["import no_such_module_at_all", "1/0", "raise SystemExit(3)", "raise ValueError('two\\nlines')"]
)
def test_a_failed_import_is_reported_in_one_line(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (tmp_path / "broken_third_party.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)

    found = extensions_discover([EntryPoint("chess", "broken_third_party:CHESS", ENVIRONMENTS)])

    (problem,) = found.problems
    assert "broken_third_party:CHESS cannot be loaded" in problem
    assert "\n" not in problem


def with_rank(module: Any, make: Any) -> Extensions:
    module.make = make
    return Extensions({}, {"rank": AdvantageExtension(summary="", factory=f"{MODULE}:make")}, {})


RANKED = AlgorithmSection.model_validate({"advantage": "rank"})


def test_an_installed_estimator_is_created_for_the_algorithm_that_names_it(module: Any) -> None:
    estimator = estimator_make(RANKED, with_rank(module, lambda _: Shift(np.array([1.0, -1.0]))))

    assert estimator is not None
    assert estimator.of_group(np.array([5.0, 3.0])).tolist() == [1.0, -1.0]
    assert estimator_make(AlgorithmSection(), BUILT_IN) is None


@pytest.mark.parametrize(
    "result, words",
    [
        (np.array([1.0]), "returned the shape (1,) for (2,)"),
        (np.array([np.nan, 1.0]), "not finite"),
        (ZeroDivisionError("a group of nothing"), "of_group raised ZeroDivisionError: a group of nothing"),
    ],
)
def test_any_error_in_an_estimator_names_the_estimator(module: Any, result: Any, words: str) -> None:
    estimator = estimator_make(RANKED, with_rank(module, lambda _: Shift(result)))
    assert estimator is not None

    with pytest.raises(UnusableExtension, match="advantage 'rank'") as caught:
        estimator.of_group(np.array([0.0, 1.0]))
    assert words in str(caught.value)


def test_a_missing_or_broken_estimator_is_reported(module: Any) -> None:
    with pytest.raises(
        UnusableExtension, match=r"algorithm\.advantage: 'rank' is not installed here; installed: "
    ):
        estimator_make(RANKED, BUILT_IN)
    with pytest.raises(UnusableExtension, match="'rank' could not be created"):
        estimator_make(RANKED, with_rank(module, lambda _: 1 / 0))


def test_options_that_the_installed_version_refuses_are_named_by_field() -> None:
    with pytest.raises(UnusableExtension, match=r"environment\.options: the installed extension refuses"):
        options_load("environment.options", {"size": 9}, ExtensionOptions)
