"""A model's tokenizer and chat template are tried when a job is submitted."""

import json
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.control_plane.jobs.submission import model_texts
from tests.fixtures.control_plane import Cast, model_folder

pytestmark = pytest.mark.django_db


def submitted(cast: Cast, folder: Path) -> tuple[int, dict[str, Any]]:
    response = cast.owner.call("POST", "jobs", cast.spec(model={"source": str(folder)}))
    return response.status_code, json.loads(response.content)


def with_template(cast: Cast, name: str, template: str) -> Path:
    folder = model_folder(cast.model.parent / name)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_a_template_that_every_turn_would_refuse_is_refused_by_name(cast: Cast) -> None:
    status, body = submitted(cast, with_template(cast, "broken", "{% frobnicate %}"))
    assert status == 400
    assert body["errors"][0]["field"] == "model.source"
    assert "frobnicate" in body["errors"][0]["detail"]


def test_a_template_that_never_ends_is_refused(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_texts, "LIMIT_S", 3)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    status, body = submitted(cast, with_template(cast, "endless", endless))
    assert status == 400
    assert "take longer than 3 s" in body["errors"][0]["detail"]


def test_an_unverified_family_is_named_on_the_job(cast: Cast) -> None:
    status, body = submitted(cast, with_template(cast, "unknown", "{{ messages[0].content }}"))
    assert status == 201
    assert body["model_notes"][0].startswith("Unverified: ")
    shown = json.loads(cast.owner.call("GET", f"jobs/{body['id']}").content)
    assert shown["model_notes"] == body["model_notes"]
    assert submitted(cast, cast.model)[1]["model_notes"] == []
