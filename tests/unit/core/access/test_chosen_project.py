"""Which project a request concerns that names none: the only one, never one of several."""

import pytest

from seamlessflow.core.access.projects import ProjectNotChosen, chosen_project

SEVERAL = "refused: is required, because you are in several projects; accepted:"


def chosen(named: str | None, *slugs: str) -> str:
    try:
        return chosen_project(named, slugs)
    except ProjectNotChosen as error:
        return f"refused: {error}"


@pytest.mark.parametrize(
    "named, slugs, expected",
    [
        (None, ("vision",), "vision"),
        ("vision", ("audio", "vision"), "vision"),
        (None, ("audio", "vision"), f"{SEVERAL} audio, vision"),
        (None, ("audio", "default"), f"{SEVERAL} audio, default"),
        (None, (), "refused: is required; accepted: none, because you are in no project"),
        ("text", ("audio",), "refused: 'text' is not one of your projects; accepted: audio"),
        ("", ("audio",), "refused: '' is not one of your projects; accepted: audio"),
    ],
)  # fmt: skip
def test_one_of_several_projects_is_never_chosen(
    named: str | None, slugs: tuple[str, ...], expected: str
) -> None:
    assert chosen(named, *slugs) == expected
