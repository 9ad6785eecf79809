"""Finds the extensions that are installed in this process's environment, and loads what they name.

Takes entry points; returns the registry for core and planes, with one sentence per extension that cannot be used.
Invariant: nothing that an extension does at import, at creation or in a call ends the process. The extension counts as
not installed, or its package fails. Only packages that the operator has installed are ever imported.
"""

import functools
import importlib.metadata
import logging
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from seamlessflow.core.algorithms.options import AdvantageEstimator
from seamlessflow.core.environment.section import UNMANAGED
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
from seamlessflow.core.spec_section import MAX_NAME_CHARS

Declaration = EnvironmentExtension | AdvantageExtension | RewardExtension
DECLARATIONS: Mapping[str, type[Declaration]] = {
    ENVIRONMENTS: EnvironmentExtension,
    ADVANTAGES: AdvantageExtension,
    REWARDS: RewardExtension,
}
_TAKEN: Mapping[str, frozenset[str]] = {
    ENVIRONMENTS: frozenset({*BUILT_IN.environments, *UNMANAGED}),
    ADVANTAGES: frozenset(AdvantageEstimator),
    REWARDS: frozenset(BUILT_IN.rewards),
}
_NAME = re.compile(rf"[a-z][a-z0-9_.-]{{0,{MAX_NAME_CHARS - 1}}}")

log = logging.getLogger(__name__)


class UnusableExtension(RuntimeError):
    """An extension is not installed here, or the object that it names does not work; the message says which one and
    why."""


@dataclass(frozen=True, slots=True)
class Discovery:
    extensions: Extensions
    problems: tuple[str, ...]  # one sentence per extension that cannot be used


@functools.cache
def extensions_installed() -> Extensions:
    """Return the extensions of this process's environment. The first call finds them and logs those that cannot be
    used.
    """
    found = extensions_discover()
    for problem in found.problems:
        log.error("%s", problem)
    return found.extensions


def extensions_discover(entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> Discovery:
    """Find extensions, by default in all packages on this process's path."""
    points = _all_entry_points() if entry_points is None else entry_points
    named: dict[tuple[str, str], list[importlib.metadata.EntryPoint]] = {}
    for point in points:
        named.setdefault((point.group, point.name), []).append(point)
    found: dict[str, dict[str, Any]] = {group: {} for group in DECLARATIONS}
    problems = []
    for (group, name), claims in sorted(named.items()):
        try:
            found[group][name] = _declaration(group, name, claims)
        except UnusableExtension as error:
            problems.append(f"{group}: {name!r} counts as not installed: {error}")
    return Discovery(
        Extensions(
            environments={**BUILT_IN.environments, **found[ENVIRONMENTS]},
            advantages={**BUILT_IN.advantages, **found[ADVANTAGES]},
            rewards={**BUILT_IN.rewards, **found[REWARDS]},
        ),
        tuple(problems),
    )


def factory_call(name: str, factory: str, argument: object) -> Any:
    """Return the object that the factory of extension `name` makes. Raises UnusableExtension."""
    try:
        make = cast("Callable[[object], Any]", pkgutil.resolve_name(factory))
        return make(argument)
    except (Exception, SystemExit) as error:
        raise UnusableExtension(
            f"{name!r} could not be created by {factory}: {error_shown(error)}"
        ) from error


def options_load(field: str, options: Mapping[str, Any], model: type[ExtensionOptions]) -> ExtensionOptions:
    """Load the options of a stored spec. Raises UnusableExtension: the extension may have changed since."""
    try:
        return model.model_validate(options)
    except ValueError as error:
        raise UnusableExtension(
            f"{field}: the installed extension refuses {dict(options)}: {error_shown(error)}"
        ) from error


def not_installed(field: str, name: str, names: Iterable[str]) -> UnusableExtension:
    return UnusableExtension(
        f"{field}: {name!r} is not installed here; installed: {', '.join(sorted(names))}"
    )


def error_shown(error: BaseException) -> str:
    """Return any error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def _all_entry_points() -> list[importlib.metadata.EntryPoint]:
    return [point for group in DECLARATIONS for point in importlib.metadata.entry_points(group=group)]


def _declaration(group: str, name: str, claims: list[importlib.metadata.EntryPoint]) -> Declaration:
    """Load one declaration. Raises UnusableExtension."""
    if not _NAME.fullmatch(name):
        raise UnusableExtension("its name must begin with a-z and continue with a-z, 0-9, '_', '.' or '-'")
    if name in _TAKEN[group]:
        raise UnusableExtension(f"the name is built in; {_package(claims[0])} must choose another")
    if len({point.value for point in claims}) > 1:
        raise UnusableExtension(f"several packages claim it: {', '.join(sorted(map(_package, claims)))}")
    try:
        loaded = claims[0].load()
    except (Exception, SystemExit) as error:
        raise UnusableExtension(f"{claims[0].value} cannot be loaded: {error_shown(error)}") from error
    wanted = DECLARATIONS[group]
    if not isinstance(loaded, wanted):
        raise UnusableExtension(
            f"{claims[0].value} has the type {type(loaded).__name__}; accepted: {wanted.__name__}"
        )
    if problem := _declaration_problem(loaded):
        raise UnusableExtension(problem)
    return loaded


def _declaration_problem(loaded: Declaration) -> str:
    """Return the fault of a declaration of the right type; empty if nothing is."""
    # A third party wrote these values, so their types are only promises.
    options: object = loaded.options
    factory: object = loaded.factory
    if not isinstance(options, type) or not issubclass(options, ExtensionOptions):
        return "options must be a class that extends ExtensionOptions"
    if options.model_config.get("extra") != "forbid":
        return f"{options.__name__} must forbid unknown keys"
    try:
        options.model_json_schema()
    except Exception as error:  # noqa: BLE001 - of whatever kind: the extension is unusable
        return f"{options.__name__} has no JSON Schema: {error_shown(error)}"
    if not isinstance(factory, str) or ":" not in factory:
        return f"factory must name a callable, 'module:name', got {factory!r}"
    return ""


def _package(point: importlib.metadata.EntryPoint) -> str:
    return "an unknown package" if point.dist is None else point.dist.name
