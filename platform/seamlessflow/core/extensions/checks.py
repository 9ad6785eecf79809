"""Whether a submitted spec names only installed extensions, with options that they accept.

Takes a spec and the registry; returns problems in words, or the spec with every option of its extensions filled in. The
checks run only when a job is submitted: a stored spec still loads after its extension is gone.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from seamlessflow.core.algorithms.options import AdvantageEstimator
from seamlessflow.core.extensions.declarations import ExtensionOptions, Extensions
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.spec_problems import SpecProblem, spec_problems


def name_problems(body: Mapping[str, Any], extensions: Extensions) -> list[SpecProblem]:
    """Report each name in a submitted mapping that is neither built in nor installed. The rest of it may be invalid."""
    accepted = {
        "environment.name": extensions.environment_names,
        "environment.reward": sorted(extensions.rewards),
        "algorithm.advantage": [*AdvantageEstimator, *sorted(extensions.advantages)],
    }
    found = ((field, _value_at(body, field), names) for field, names in accepted.items())
    return [
        SpecProblem(field=field, detail=_not_installed(value, names))
        for field, value, names in found
        if isinstance(value, str) and value not in names
    ]


def option_problems(spec: JobSpec, extensions: Extensions) -> list[SpecProblem]:
    """Report options that the named extensions refuse. All names must be known (`name_problems`)."""
    problems = list(_combination_problems(spec, extensions))
    for field, options, model in _named_options(spec, extensions):
        try:
            model.model_validate(options)
        except ValidationError as error:
            problems += [
                SpecProblem(field=f"{field}.{problem.field}".rstrip("."), detail=problem.detail)
                for problem in spec_problems(error, model)
            ]
    return problems


def options_filled(spec: JobSpec, extensions: Extensions) -> JobSpec:
    """Return the spec with all options of its extensions, defaults included. Its options must be valid."""
    filled = {
        field: model.model_validate(options).model_dump(mode="json")
        for field, options, model in _named_options(spec, extensions)
    }
    sections: dict[str, dict[str, Any]] = {}
    for field, options in filled.items():
        section, _, key = field.partition(".")
        sections.setdefault(section, {})[key] = options
    updated = {name: getattr(spec, name).model_copy(update=keys) for name, keys in sections.items()}
    return spec.model_copy(update=updated)


def _named_options(
    spec: JobSpec, extensions: Extensions
) -> Iterator[tuple[str, Mapping[str, Any], type[ExtensionOptions]]]:
    """Yield (field of its options, the options given, their model) for each extension that a spec names."""
    environment, algorithm = spec.environment, spec.algorithm
    if (runs := extensions.environments.get(environment.name)) is not None:
        yield "environment.options", environment.options, runs.options
    if environment.reward is not None:
        yield (
            "environment.reward_options",
            environment.reward_options,
            extensions.rewards[environment.reward].options,
        )
    if (advantage := algorithm.installed_advantage) is not None:
        yield (
            "algorithm.advantage_options",
            algorithm.advantage_options,
            extensions.advantages[advantage].options,
        )


def _combination_problems(spec: JobSpec, extensions: Extensions) -> Iterator[SpecProblem]:
    environment, algorithm = spec.environment, spec.algorithm
    runs = extensions.environments.get(environment.name)
    if environment.reward is not None and runs is not None and not runs.gives_answer:
        graded = [name for name, one in sorted(extensions.environments.items()) if one.gives_answer]
        yield SpecProblem(
            field="environment.reward",
            detail=f"environment {environment.name!r} reports rewards itself and gives no answer that "
            f"{environment.reward!r} could grade; leave reward out, or use one of: {', '.join(graded)}",
        )
    advantage = algorithm.installed_advantage
    is_relative = advantage is None or extensions.advantages[advantage].is_group_relative
    if algorithm.sampling.dynamic and not is_relative:
        yield SpecProblem(
            field="algorithm.sampling.dynamic",
            detail=f"groups of equal rewards still teach with {advantage} advantages; only advantages relative to the "
            "group are zero there",
        )


def _value_at(body: object, field: str) -> object:
    section, _, key = field.partition(".")
    given = body.get(section) if isinstance(body, Mapping) else None
    return given.get(key) if isinstance(given, Mapping) else None


def _not_installed(value: str, names: Iterable[str]) -> str:
    accepted = list(names)
    near = difflib.get_close_matches(value, accepted, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{value!r} is not installed here; {hint}accepted: {', '.join(accepted)}"
