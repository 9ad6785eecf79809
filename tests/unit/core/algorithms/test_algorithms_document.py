"""docs/algorithms.md gives every option with a default and a source, and every preset's loss with
its own numbers."""

import pytest

from seamlessflow.core.algorithms.options import AlgorithmName, Objective, RatioLevel
from seamlessflow.core.algorithms.reference_tables import SOURCES, filled, option_paths
from seamlessflow.core.algorithms.section import AlgorithmSection
from tests.fixtures.repository import ROOT

DOCUMENT = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


def loss_of(name: AlgorithmName) -> str:
    """Return the line that writes out a preset's loss."""
    (line,) = [line for line in DOCUMENT.splitlines() if line.startswith(f"    {name.value} ")]
    return line


def test_tables_are_those_of_the_code() -> None:
    assert filled(DOCUMENT) == DOCUMENT, "run `python manage.py export_schemas`"


def test_exactly_the_options_have_sources() -> None:
    assert set(SOURCES) == option_paths()


def test_every_option_has_a_default_and_a_meaning() -> None:
    rows = [
        line.split(" | ")
        for line in DOCUMENT.splitlines()
        if line.startswith("| `") and line.count(" | ") == 4
    ]
    assert len(rows) == len(SOURCES)
    for path, default, _, meaning, source in rows:
        assert default.strip("`"), path
        assert "Undefined" not in default
        assert len(meaning) > 10, path
        assert len(source.strip(" |")) > 1, path


@pytest.mark.parametrize("name", AlgorithmName)
def test_the_loss_written_out_has_the_numbers_of_the_preset(name: AlgorithmName) -> None:
    line, section = loss_of(name), AlgorithmSection.model_validate({"name": name.value})
    if section.objective is Objective.CLIP and section.ratio is not RatioLevel.SEQUENCE_MEAN:
        assert f"{1 - section.clip_low:g}, {1 + section.clip_high:g})" in line
    if section.ratio is RatioLevel.SEQUENCE_MEAN:
        assert (section.clip_low, section.clip_high) == (3e-4, 4e-4)
        assert "clip(ρ_s, 1 − 3e-4, 1 + 4e-4)" in line
    if section.objective is Objective.CISPO:
        assert f"min(ρ, {1 + section.clip_high:g})" in line
    named = f"{section.kl_coef:g}·{'Σ ' if section.is_kl_in_reward else ''}{section.kl_estimator.value}"
    assert (named in line) == (section.kl_coef > 0)
    assert ("/std" in line) == (section.advantage_norm.value == "mean_std" and section.advantage == "group")
    factor = {"token_mean": "1/n ", "sequence_mean": "1/M ", "constant": "1/(M·C) "}
    assert factor[section.aggregation.value] in line


@pytest.mark.parametrize("lost", ["<!-- presets -->", "<!-- end of options -->"])
def test_a_document_without_its_markers_is_refused(lost: str) -> None:
    with pytest.raises(ValueError, match="no table between"):
        filled(DOCUMENT.replace(lost, ""))
