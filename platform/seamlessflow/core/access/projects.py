"""Which of the caller's projects a request concerns: the one that it names, or the only one.

Invariant: nothing ever chooses one of several projects for a caller who named none, because the request may delete or
change what belongs to another project than the one they mean. A default project per account was rejected: it would
be chosen long before the request that it decides.
"""

from collections.abc import Sequence


class ProjectNotChosen(ValueError):
    """The request concerns none of the caller's projects, or does not say which."""


def chosen_project(named: str | None, slugs: Sequence[str]) -> str:
    """Return the slug of the project. `slugs`: those of the caller's projects. Raises ProjectNotChosen.

    >>> chosen_project(None, ["vision"])
    'vision'
    """
    accepted = ", ".join(slugs) or "none, because you are in no project"
    if named is None:
        if len(slugs) == 1:
            return slugs[0]
        several = ", because you are in several projects" if slugs else ""
        raise ProjectNotChosen(f"is required{several}; accepted: {accepted}")
    if named not in slugs:
        raise ProjectNotChosen(f"{named!r} is not one of your projects; accepted: {accepted}")
    return named
