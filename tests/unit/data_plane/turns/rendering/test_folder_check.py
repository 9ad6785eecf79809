"""What a submission learns of a model folder before any turn is served."""

import json
from pathlib import Path

import pytest

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.protocol.model_folders import FolderReport
from seamlessflow.data_plane.turns.rendering.folder_check import folder_check
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

SEED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for call in m.tool_calls or [] %}"
    "<seed:tool_call><function={{ call.function.name }}>{% for key, value in call.function.arguments.items() %}"
    "<parameter={{ key }}>{{ value }}</parameter>{% endfor %}</function></seed:tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def checked(
    folder: Path, template: object = TEMPLATE, family: ModelFamily = ModelFamily.AUTO
) -> FolderReport:
    return folder_check(write_tiny_text(folder, template=template), family)  # type: ignore[arg-type]


def test_a_call_that_the_template_writes_is_read_back(tmp_path: Path) -> None:
    report = checked(tmp_path)
    assert (report.refusal, report.family, report.is_verified) == (None, ModelFamily.HERMES, True)
    assert report.notes == ()


@pytest.mark.parametrize(
    "template, family",
    [(SEED, ModelFamily.QWEN3_CODER), (SEED.replace("<function=", "<invoke name="), ModelFamily.HERMES)],
)
def test_a_family_that_no_parser_knows_is_unverified(
    template: str, family: ModelFamily, tmp_path: Path
) -> None:
    report = checked(
        tmp_path, template.replace("<parameter=", "<p>" if "invoke" in template else "<parameter=")
    )
    assert (report.refusal, report.family, report.is_verified) == (None, family, False)
    assert report.notes[0].startswith("Unverified: calls are read as those of")


def test_the_template_for_tools_decides_about_the_family(tmp_path: Path) -> None:
    named = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": SEED}]
    assert checked(tmp_path, named).family is ModelFamily.QWEN3_CODER


def test_a_named_family_is_tried_and_kept(tmp_path: Path) -> None:
    report = checked(tmp_path, family=ModelFamily.MISTRAL)
    assert (report.family, report.is_verified) == (ModelFamily.MISTRAL, False)


@pytest.mark.parametrize(
    "template, word",
    [
        ("{% frobnicate %}", "cannot be compiled"),
        ("{{ raise_exception('never') }}", "never"),
        (
            "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",
            "a text",
        ),
        (None, "has no chat template"),
        ([{"name": "a", "template": "a"}, {"name": "b", "template": "b"}], "a, b"),
        ([{"name": "a"}], "template"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "too often"),
    ],
)
def test_a_template_that_serves_no_turn_is_refused(template: object, word: str, tmp_path: Path) -> None:
    assert word in (checked(tmp_path, template).refusal or "")


@pytest.mark.parametrize(
    "name, content, word",
    [
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("tokenizer_config.json", "[1", "not JSON"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
        ("tokenizer_config.json", "\ufeff{}", "byte order mark"),
        (
            "tokenizer_config.json",
            '{"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}',
            "fast_tokenizer_files",
        ),
        ("tokenizer_config.json", json.dumps({"chat_template": TEMPLATE}), "end-of-turn"),
        ("tokenizer_config.json", json.dumps({"chat_template": TEMPLATE, "eos_token": 3}), "3 where a token"),
        (
            "tokenizer_config.json",
            json.dumps({"added_tokens_decoder": {"x": 1}, "eos_token": "a", "chat_template": "a"}),
            "cannot be read",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, content: str, word: str, tmp_path: Path) -> None:
    write_tiny_text(tmp_path)
    (tmp_path / name).write_text(content)
    assert word in (folder_check(str(tmp_path)).refusal or "")


def test_what_only_some_turns_need_is_a_note(tmp_path: Path) -> None:
    template = TEMPLATE.replace(
        "{%- for message in messages %}",
        "{%- for message in messages %}{% if message.role == 'system' or message.tool_calls | length > 1 %}"
        "{{ raise_exception('no') }}{% endif %}",
    ).replace("message.tool_calls | length", "message.tool_calls | default([], true) | length")
    report = checked(tmp_path, template)
    assert report.refusal is None
    assert [note.partition(" are refused")[0] for note in report.notes] == [
        "Conversations with a system message",
        "Conversations with two calls in one answer",
    ]
