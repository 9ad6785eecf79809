"""Whose retention a request changes that names no project: never one of several, whose files it would delete."""

from types import SimpleNamespace
from typing import Any

import pytest

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.storage import apis


def chosen(monkeypatch: pytest.MonkeyPatch, slugs: list[str], slug: str | None = None) -> str:
    projects = [SimpleNamespace(slug=one) for one in slugs]
    monkeypatch.setattr(apis, "project_list_readable", lambda access: projects)
    api: Any = SimpleNamespace(access=None)
    return apis._project_of(api, slug).slug


def test_the_only_project_and_the_default_project_need_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, ["vision"]) == "vision"
    assert chosen(monkeypatch, ["audio", "default"]) == "default"
    assert chosen(monkeypatch, ["audio", "vision"], "vision") == "vision"


def test_one_of_several_projects_is_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApplicationError) as refusal:
        chosen(monkeypatch, ["audio", "vision"])

    assert "is required" in str(vars(refusal.value))
    assert "audio, vision" in str(vars(refusal.value))
