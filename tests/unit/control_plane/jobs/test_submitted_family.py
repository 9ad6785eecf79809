"""The family that a submitted job records."""

from pathlib import Path

import pytest

from seamlessflow.control_plane.jobs.families import model_family
from seamlessflow.core.families import ModelFamily
from tests.fixtures.tiny_text import write_tiny_text


def test_the_template_in_its_own_file_counts_first(tmp_path: Path) -> None:
    folder = Path(write_tiny_text(tmp_path, template="[TOOL_CALLS]{{ messages }}"))
    assert model_family(folder, ModelFamily.AUTO) is ModelFamily.MISTRAL
    (folder / "chat_template.jinja").write_text("<arg_key>{{ messages }}<arg_value>")
    assert model_family(folder, ModelFamily.AUTO) is ModelFamily.GLM


def test_a_named_family_is_kept(tmp_path: Path) -> None:
    folder = Path(write_tiny_text(tmp_path))
    assert model_family(folder, ModelFamily.LLAMA3) is ModelFamily.LLAMA3


def test_the_tokens_decide_without_calls_in_the_template(tmp_path: Path) -> None:
    folder = Path(write_tiny_text(tmp_path, template="{{ messages }}"))
    assert model_family(folder, ModelFamily.AUTO) is ModelFamily.HERMES
    (folder / "tokenizer.json").write_text('{"added_tokens": [{"id": 0, "content": "[TOOL_CALLS]"}]}')
    assert model_family(folder, ModelFamily.AUTO) is ModelFamily.MISTRAL


@pytest.mark.parametrize("content", ["{oops", "[1]", '{"chat_template": 3}'])
def test_unreadable_files_count_as_unknown(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    assert model_family(tmp_path, ModelFamily.AUTO) is ModelFamily.HERMES
