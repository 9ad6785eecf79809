"""What the files of a model folder mean: as in transformers, without asking it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers, processors

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.core.trajectory.prefix_tree import Drift, Node, NodeKind, PrefixTree
from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import PromptRequest, prompt_make
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, TurnPlan
from tests.fixtures.planned_turns import plan_turn
from tests.fixtures.tiny_text import TEMPLATE, write_tiny_text

ASKED = {"role": "user", "content": "What is 12 + 34? " * 8}
TOOL = {"type": "function", "function": {"name": "calc", "description": "é", "parameters": {}}}
PHI = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>{% endif %}"
)


def written(folder: Path, template: Any = TEMPLATE) -> Path:
    return Path(write_tiny_text(folder, template=template))


def changed(folder: Path, **settings: Any) -> Path:
    """Change tokenizer_config.json of a folder."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folder


def retokenised(folder: Path, **parts: Any) -> Path:
    """Change parts of the tokenizer, or call its methods with arguments."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for name, value in parts.items():
        if callable(attribute := getattr(tokenizer, name)):
            attribute(**value)
        else:
            setattr(tokenizer, name, value)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def load(folder: Path) -> ModelText:
    return model_text_load.__wrapped__(str(folder))


def planned(
    text: ModelText, *messages: dict[str, Any], tools: Any = None, tree: PrefixTree | None = None
) -> TurnPlan:
    return plan_turn(tree or PrefixTree(), text, Conversation(list(messages), tools, {}))


def prompt(
    text: ModelText, *messages: dict[str, Any], tools: Any = None, tree: PrefixTree | None = None
) -> str:
    """Return the text of a prompt's tokens."""
    ids = memoryview(planned(text, *messages, tools=tools, tree=tree).new_ids).cast("i").tolist()
    said: str = text.tokenizer.decode(ids, skip_special_tokens=False)
    return said


@pytest.mark.parametrize(
    "left",
    [
        {"enable_truncation": {"max_length": 16}},
        {"enable_truncation": {"max_length": 4, "stride": 1, "direction": "left"}},
        {"enable_padding": {"length": 512}},
        {"enable_padding": {"pad_to_multiple_of": 64, "direction": "left"}},
    ],
)
def test_what_the_last_call_before_saving_left_in_the_tokenizer_is_ignored(
    left: dict[str, Any], tmp_path: Path
) -> None:
    plain = load(written(tmp_path / "plain"))
    saved = load(retokenised(written(tmp_path / "saved"), **left))
    assert planned(saved, ASKED).new_ids == planned(plain, ASKED).new_ids


def test_a_token_takes_the_white_space_that_its_configuration_gives_it(tmp_path: Path) -> None:
    token = {"content": "<|im_end|>", "rstrip": True, "special": True, "normalized": False}
    text = load(changed(written(tmp_path), added_tokens_decoder={"2": token}))
    assert "<|im_end|><|im_start|>" in prompt(text, ASKED)


def test_special_tokens_may_be_split_by_configuration(tmp_path: Path) -> None:
    text = load(changed(written(tmp_path), split_special_tokens=True))
    end = text.tokenizer.token_to_id("<|im_end|>")
    assert end not in memoryview(planned(text, ASKED).new_ids).cast("i").tolist()


@pytest.mark.parametrize("as_files", [False, True])
def test_tools_reach_the_template_that_is_meant_for_them(as_files: bool, tmp_path: Path) -> None:
    named = {"default": "{{ messages[0].content }} without", "tool_use": "{{ tools | tojson }} with"}
    folder = written(tmp_path, [{"name": name, "template": source} for name, source in named.items()])
    if as_files:
        folder = written(tmp_path / "files", None)
        (folder / "chat_template.jinja").write_text(named["default"])
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text(named["tool_use"])
    text = load(folder)
    assert prompt(text, ASKED).endswith(" without")
    assert "calc" in prompt(text, ASKED, tools=[TOOL])


CALLS_IF_NULL = (
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for call in m.tool_calls %}[{{ call.function.name }}]{% endfor %}{% else %}({{ m.content }}){% endif %}"
    "{% endfor %}"
)
NULL_AS_WORD = (
    "{% for m in messages %}({{ m.content }}){% for call in m.tool_calls or [] %}[{{ call.function.name }}]"
    "{% endfor %}{% endfor %}"
)
NULL_FAILS = NULL_AS_WORD.replace("{{ m.content }}", "{{ m.content.strip() }}")
CALL = {"id": "1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "1"}


@pytest.mark.parametrize(
    "template, wanted",
    [(CALLS_IF_NULL, "(?)[calc](1)"), (NULL_AS_WORD, "(?)()[calc](1)"), (NULL_FAILS, "(?)()[calc](1)")],
)
def test_an_answer_without_text_keeps_its_calls(template: str, wanted: str, tmp_path: Path) -> None:
    text = load(written(tmp_path, template))
    assert prompt(text, {"role": "user", "content": "?"}, CALLED, RESULT, tools=[TOOL]) == wanted


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_reaches_the_template_under_the_name_that_it_reads(name: str, tmp_path: Path) -> None:
    source = f"{{% for m in messages %}}({{{{ m.{name} }}}}){{{{ m.content }}}}{{% endfor %}}"
    text = load(written(tmp_path, source))
    answer = {"role": "assistant", "content": "2", "reasoning_content": "Easy."}
    assert "(Easy.)2" in prompt(text, {"role": "user", "content": "?"}, answer, ASKED)


def test_a_template_that_accepts_no_reasoning_beside_a_call_is_not_given_any(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{% if m.thinking and m.content and m.tool_calls %}{{ raise_exception('both') }}"
        "{% endif %}{{ m.thinking }}{{ m.content }}{% endfor %}"
    )
    answer = {**CALLED, "content": "Wait.", "reasoning_content": "Easy."}
    text = load(written(tmp_path, source))
    assert "Wait." in prompt(text, {"role": "user", "content": "?"}, answer, RESULT, tools=[TOOL])


@pytest.mark.parametrize(
    "source, wanted",
    [
        ("{% generation %}a{% endgeneration %}", "a"),
        ("{%- generation -%} a {%- endgeneration -%} b", "ab"),
        ("{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "user"),
        ("{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=True) }}", '{"a":"é","b":1}'),
        ("{{ documents is defined }}", "True"),
    ],
)
def test_templates_have_what_transformers_offers(source: str, wanted: str, tmp_path: Path) -> None:
    try:
        said = prompt(load(written(tmp_path, source)), ASKED)
    except TemplateRefused as error:
        said = str(error)
    assert said == wanted


def followed(text: ModelText, end: str) -> tuple[Drift, str]:
    """Return the drift and the tokens of a turn after an answer that ends with a mark; "": it was cut short."""
    tree, answer = PrefixTree(), {"role": "assistant", "content": "46"}
    first = planned(text, ASKED, tree=tree)
    tree.add(Node(0, None, NodeKind.ROOT, first.new_ids, first.digests, 0, first.context))
    tree.add(Node(1, 0, NodeKind.SAMPLED, text.encode("46" + end), message_digests([answer]), 0, b""))
    plan = planned(text, ASKED, answer, {"role": "user", "content": "Sure?"}, tree=tree)
    ids = memoryview(plan.new_ids).cast("i").tolist()
    return plan.drift, "".join(str(text.tokenizer.id_to_token(i)) for i in ids)


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>", ""])
def test_a_mark_that_ends_a_finished_rendering_begins_no_branch(end: str, tmp_path: Path) -> None:
    folder = changed(written(tmp_path, PHI), eos_token="<|endoftext|>")
    ends = [load(folder).tokenizer.token_to_id(mark) for mark in ("<|im_end|>", "<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    drift, tokens = followed(load(folder), end)
    assert (drift, tokens.startswith("<|im_end|>")) == (Drift.CLEAN, not end)


def test_a_mark_that_ends_no_turn_may_precede_it(tmp_path: Path) -> None:
    text = load(changed(written(tmp_path, PHI), eos_token="<|endoftext|>"))
    assert text.end_texts == ("<|endoftext|>",)
    drift, tokens = followed(text, "<|endoftext|>")
    assert (drift, tokens[:13]) == (Drift.CLEAN, "Ċ<|im_start|>")


OPEN_ENDS = [  # the mark that ends an answer is only written once something follows, as by Qwen1.5
    (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% if not loop.last or add_generation_prompt %}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    (
        "{% for m in messages %}{% if not loop.first %}<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_end|>\n<|im_start|>assistant\n{% endif %}"
    ),
]


@pytest.mark.parametrize("template", OPEN_ENDS)
@pytest.mark.parametrize("end", ["<|im_end|>", ""])
def test_an_answer_that_the_template_ends_later_begins_no_branch(
    end: str, template: str, tmp_path: Path
) -> None:
    drift, tokens = followed(load(written(tmp_path, template)), end)
    opened = "Ċ<|im_start|>userĊSure?"
    assert (drift, tokens.startswith(("" if end else "<|im_end|>") + opened)) == (Drift.CLEAN, True)


def test_text_after_an_answer_does_not_begin_a_text(tmp_path: Path) -> None:
    folder = retokenised(
        written(tmp_path), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    )
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"] |= {"▁": 900, "\n": 901}
    file.write_text(json.dumps(content))
    for end, wanted in (("<|im_end|>", "\n<|im_start|>"), ("", "<|im_end|>\n")):
        assert followed(load(folder), end)[1].startswith(wanted)


def test_white_space_goes_with_the_mark_that_takes_it(tmp_path: Path) -> None:
    token = {"content": "<|im_end|>", "rstrip": True, "special": True, "normalized": False}
    text = load(changed(written(tmp_path), added_tokens_decoder={"2": token}))
    assert followed(text, "<|im_end|>")[1].startswith("<|im_start|>")
    assert followed(text, "")[1].startswith("<|im_end|><|im_start|>")


def test_a_raw_prompt_begins_as_the_tokenizer_begins_texts(tmp_path: Path) -> None:
    begin = [("<|endoftext|>", 0), ("<|im_end|>", 2)]
    post = processors.TemplateProcessing(single="<|endoftext|> $A <|im_end|>", special_tokens=begin)
    text = load(retokenised(written(tmp_path), post_processor=post))
    request = PromptRequest("", (), None, {}, (), max_tokens=99, text="1 + 1")
    ids = memoryview(prompt_make(text, request).new_ids).cast("i").tolist()
    assert ids == [0, *text.ids("1 + 1")]
    assert not prompt(text, ASKED).startswith("<|endoftext|>")


@pytest.mark.parametrize(
    "name, content",
    [
        ("config.json", '{"time_step_limit": [0.0, Infinity], "x": NaN}'),
        ("generation_config.json", '{"temperature": -Infinity}'),
        ("config.json", '{"model_max_length": 1000000000000000019884624838656}'),
    ],
)
def test_numbers_that_only_python_reads_are_no_fault(name: str, content: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / name).write_text(content)
    try:
        ends: object = load(folder).end_texts
    except ModelUnusable as error:
        ends = error
    assert ends == ("<|im_end|>",)


@pytest.mark.parametrize(
    "config, wanted",
    [
        ({"text_config": {"eos_token_id": 2}}, ("<|im_end|>",)),
        ({"text_config": {"eos_token_id": [2, 0]}, "eos_token_id": 0}, ("<|endoftext|>", "<|im_end|>")),
        ({"eos_token_id": [True, 2, "0", -1, 10**9]}, ("<|im_end|>",)),
    ],
)
def test_the_marks_that_end_a_turn_stand_in_several_forms(
    config: dict[str, Any], wanted: tuple[str, ...], tmp_path: Path
) -> None:
    folder = changed(written(tmp_path), eos_token=None)
    (folder / "config.json").write_text(json.dumps(config))
    try:
        ends: object = load(folder).end_texts
    except ModelUnusable as error:
        ends = error
    assert ends == wanted
