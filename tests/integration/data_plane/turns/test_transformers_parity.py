"""A model folder means what transformers makes of it: prompts equal `apply_chat_template`, token by token.

All templates in TRL's wheel, named templates and tokenizer settings are tried with conversations as clients send them.
Where transformers refuses a conversation, so does the gateway.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from seamlessflow.data_plane.turns.rendering.chat_template import template_messages
from seamlessflow.data_plane.turns.rendering.folder_check import folder_check
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import Cut, PromptRequest, prompt_make
from tests.fixtures.real_templates import trl_templates

TOOL = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Calculate é <b>.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "what to calculate"}},
            "required": ["expression"],
        },
    },
}
MARKS = (
    "<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|assistant|>", "<tool_call>",
    "</tool_call>", "<think>", "</think>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def said(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def call(number: int = 0, arguments: str = '{"expression": "1 < 2"}') -> dict[str, Any]:
    return {
        "id": f"callid{number:03}",
        "type": "function",
        "function": {"name": "calc", "arguments": arguments},
    }


def result(number: int = 0) -> dict[str, Any]:
    return said("tool", "3.0!", tool_call_id=f"callid{number:03}", name="calc")


ASKED = said("user", "What is 1 + 1?")
CONVERSATIONS: Mapping[str, tuple[list[dict[str, Any]], list[Any] | None]] = {
    "question": ([ASKED], None),
    "system": ([said("system", "Be brief."), ASKED], None),
    "second question": ([ASKED, said("assistant", "2"), said("user", "  Sure?\n")], None),
    "four turns": ([ASKED, said("assistant", "2"), ASKED, said("assistant", " 2 "), ASKED], None),
    "tools offered": ([ASKED], [TOOL]),
    "call": ([ASKED, said("assistant", None, tool_calls=[call()]), result()], [TOOL]),
    "call beside text": ([ASKED, said("assistant", "Let me see.", tool_calls=[call()]), result()], [TOOL]),
    "two calls": (
        [ASKED, said("assistant", None, tool_calls=[call(0), call(1)]), result(0), result(1)],
        [TOOL],
    ),
    "call without arguments": (
        [ASKED, said("assistant", None, tool_calls=[call(arguments="{}")]), result()],
        [TOOL],
    ),
    "answer after a result": (
        [ASKED, said("assistant", None, tool_calls=[call()]), result(), said("assistant", "2"), ASKED],
        [TOOL],
    ),
    "reasoning": ([ASKED, said("assistant", "2", reasoning_content="Easy."), ASKED], None),
    "reasoning and call": (
        [ASKED, said("assistant", None, reasoning_content="Hm.", tool_calls=[call()]), result()],
        [TOOL],
    ),
    "other words": ([said("user", "naïve 🫨 <|im_end|> {{ x }}\n\n")], None),
}


def byte_level(**changes: Any) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return tokenizer


def metaspace(scheme: str, **flags: Any) -> Tokenizer:
    """Return a tokenizer of the SentencePiece kind. flags: of its special tokens."""
    letters = ["<unk>", "▁", *map(chr, range(33, 127)), "\n", "é", "ï", "<0x0A>"]
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[], unk_token="<unk>")
    )
    if scheme == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.add_special_tokens(
        [AddedToken(mark, special=True, normalized=False, **flags) for mark in MARKS]
    )
    return tokenizer


def with_post_processor(single: str) -> Tokenizer:
    tokenizer = byte_level()
    ids = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return tokenizer


def truncated(max_length: int, **options: Any) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.enable_truncation(max_length, **options)
    return tokenizer


def padded(**options: Any) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("</s>"), pad_token="</s>", **options)
    return tokenizer


TOKENIZERS: Mapping[str, Callable[[], Tokenizer]] = {
    "byte level": byte_level,
    "truncated": lambda: truncated(16),
    "truncated left": lambda: truncated(4, stride=2, direction="left"),
    "padded": lambda: padded(length=64),
    "padded to a multiple": lambda: padded(pad_to_multiple_of=32, direction="left"),
    "first": lambda: metaspace("first"),
    "always": lambda: metaspace("always"),
    "never": lambda: metaspace("never"),
    "prepend": lambda: metaspace("prepend"),
    "first and rstrip": lambda: metaspace("first", rstrip=True),
    "always and lstrip": lambda: metaspace("always", lstrip=True),
    "rstrip and lstrip": lambda: metaspace("prepend", rstrip=True, lstrip=True),
    "begins": lambda: with_post_processor("<s> $A"),
    "begins and ends": lambda: with_post_processor("<s> $A </s>"),
}


def declared(text: str, *, special: bool = False, lstrip: bool = False) -> dict[str, Any]:
    flags = {"lstrip": lstrip, "rstrip": True, "single_word": False, "normalized": not special}
    return {"content": text, "special": special, **flags}


SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "split": {"split_special_tokens": True},
    "begins": {"add_bos_token": True, "add_eos_token": True, "add_prefix_space": True},
    "cleans": {"clean_up_tokenization_spaces": True, "model_max_length": 8, "truncation_side": "left"},
    "more tokens": {"extra_special_tokens": ["<|new|>", "<|user|>"], "image_token": "<image>"},
    "named tokens": {"extra_special_tokens": {"boi_token": "What"}},
    "older names": {"additional_special_tokens": ["brief", "<|end|>"], "pad_token": "is"},
    "both names": {
        "additional_special_tokens": ["brief"],
        "extra_special_tokens": {"boi_token": "What"},
    },
    "newer name wins": {"additional_special_tokens": ["brief"], "extra_special_tokens": ["What"]},
    "declared": {
        "added_tokens_decoder": {
            "999": declared("user"),
            "260": declared("<|im_end|>", special=True, lstrip=True),
        }
    },
}


def write(folder: Path, tokenizer: Tokenizer, template: Any, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "<|im_end|>", **settings}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def ours(
    text: ModelText, messages: Sequence[Any], tools: Sequence[Any] | None, **arguments: Any
) -> list[int]:
    shown = template_messages(messages, has_text_arguments=text.family.has_text_arguments)
    request = PromptRequest("", shown, tools, arguments, cuts=(), max_tokens=1 << 20)
    return memoryview(prompt_make(text, request).new_ids).cast("i").tolist()


def theirs(
    tokenizer: Any, text: ModelText, messages: Sequence[Any], tools: Sequence[Any] | None, **arguments: Any
) -> list[int]:
    """Return what transformers makes of the messages, with arguments of calls as their template expects them."""
    shown = copy.deepcopy(list(messages))
    for message in shown:
        for one in message.get("tool_calls", ()):
            if not text.family.has_text_arguments:
                one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    ids: list[int] = tokenizer.apply_chat_template(
        shown, tools=tools, add_generation_prompt=True, return_dict=False, **arguments
    )
    return ids


def attempt(make: Callable[[], list[int]]) -> list[int] | None:
    try:
        return make()
    except Exception:  # templates raise anything
        return None


def empty(messages: Sequence[Any]) -> list[Any]:
    return [message | {"content": message["content"] or ""} for message in messages]


def renamed(messages: Sequence[Any], name: str) -> list[Any]:
    """Return messages with reasoning under another name as well."""
    return [
        message | {name: message["reasoning_content"]} if "reasoning_content" in message else message
        for message in messages
    ]


def is_right(got: list[int] | None, tokenizer: Any, text: ModelText, messages: Any, tools: Any) -> bool:
    """Return whether this is what transformers makes of the messages, in a form that means the same to a client.

    Content that is null counts as such, unless the template fails on it or writes it as a word. Reasoning has another
    name for templates that read it under that name only.
    """

    def made(form: Any) -> list[int] | None:
        return attempt(lambda: theirs(tokenizer, text, form, tools))

    as_sent = made(messages)
    if got == as_sent and got is not None:
        return not writes_none(tokenizer, as_sent, made(empty(messages)))
    is_refused = as_sent is None or writes_none(tokenizer, as_sent, made(empty(messages)))
    renaming = [renamed(empty(messages), name) for name in ("reasoning", "thinking")]
    others = [made(form) for form in ([empty(messages)] if is_refused else []) + renaming]
    return got in others if got is not None else not any(others)


def writes_none(tokenizer: Any, with_null: list[int] | None, without: list[int] | None) -> bool:
    if without is None or with_null is None or with_null == without:
        return False
    words = [str(tokenizer.decode(ids)).count("None") for ids in (with_null, without)]
    return words[0] > words[1]


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    return trl_templates()


def test_every_template_of_trl_renders_as_in_transformers_or_is_refused_at_submission(
    templates: dict[str, str], tmp_path: Path
) -> None:
    assert len(templates) == 72
    refused = set()
    for name, template in templates.items():
        folder = write(tmp_path / name, byte_level(), template)
        if folder_check(str(folder)).refusal is not None:
            refused.add(name)
            continue
        text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
        for what, (messages, tools) in CONVERSATIONS.items():
            got = attempt(lambda: ours(text, messages, tools))  # noqa: B023 - called at once
            assert is_right(got, tokenizer, text, messages, tools), f"{name}: {what}"
    # These write nothing of a text that is not in a list of parts.
    names = ("idefics3", "llava_next", "smolvlm")
    assert refused == {*names, *(f"{name}_training" for name in names)}


@pytest.mark.parametrize("template", ["chatml", "phi3", "qwen3", "llama3_1", "deepseekv3", "gemma3"])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_settings_of_the_tokenizer_file_mean_the_same(
    kind: str, template: str, templates: dict[str, str], tmp_path: Path
) -> None:
    folder = write(tmp_path, TOKENIZERS[kind](), templates.get(template, CHATML))
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for messages, tools in CONVERSATIONS.values():
        got = attempt(lambda: ours(text, messages, tools))  # noqa: B023 - called at once
        assert is_right(got, tokenizer, text, messages, tools)


@pytest.mark.parametrize("kind", ["byte level", "first and rstrip"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_the_configuration_mean_the_same(settings: str, kind: str, tmp_path: Path) -> None:
    template = (
        CHATML + "{{ bos_token }}{{ pad_token }}{{ image_token }}{{ boi_token }}{{ documents is defined }}"
    )
    folder = write(tmp_path, TOKENIZERS[kind](), template, **SETTINGS[settings])
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for messages, tools in CONVERSATIONS.values():
        assert ours(text, messages, tools) == theirs(tokenizer, text, messages, tools)


def test_older_files_count_where_they_count_in_transformers(tmp_path: Path) -> None:
    template = CHATML + "{{ eos_token }}{{ bos_token }}"
    folder = write(tmp_path, byte_level(), template, bos_token=None, eos_token=None)
    tokens = {"eos_token": {"content": "<|end|>", "rstrip": True}, "bos_token": "<s>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(tokens))
    (folder / "added_tokens.json").write_text(json.dumps({"brief": 273, "<|end|>": 272}))
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    assert text.end_texts == ("<|end|>",)
    for messages, tools in CONVERSATIONS.values():
        assert ours(text, messages, tools) == theirs(tokenizer, text, messages, tools)


NAMED: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "in the configuration": (
        [{"name": "tool_use", "template": "T" + CHATML}, {"name": "default", "template": "D" + CHATML}],
        {},
    ),
    "default in its file": (None, {"chat_template.jinja": "D" + CHATML, "tool_use": "T" + CHATML}),
    "files win": ([{"name": "tool_use", "template": "X"}], {"chat_template.jinja": "D" + CHATML}),
    "default among others": (
        [{"name": "rag", "template": "R"}, {"name": "default", "template": "D" + CHATML}],
        {},
    ),
    "all in files": ("X", {"default": "D" + CHATML, "tool_use": "T" + CHATML, "rag": "R"}),
}


@pytest.mark.parametrize("case", NAMED)
def test_named_templates_are_chosen_as_in_transformers(case: str, tmp_path: Path) -> None:
    configured, files = NAMED[case]
    folder = write(tmp_path, byte_level(), configured)
    (folder / "additional_chat_templates").mkdir()
    for name, template in files.items():
        file = name if name.endswith(".jinja") else f"additional_chat_templates/{name}.jinja"
        (folder / file).write_text(template)
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for messages, tools in CONVERSATIONS.values():
        assert ours(text, messages, tools) == theirs(tokenizer, text, messages, tools)


def test_the_only_template_is_used_whatever_its_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", byte_level(), [{"name": "chat", "template": CHATML}])
    plain = write(tmp_path / "plain", byte_level(), CHATML)
    made = [ours(model_text_load(str(one)), [ASKED], None) for one in (folder, plain)]
    assert made[0] == made[1]
    two = write(tmp_path / "two", byte_level(), [{"name": name, "template": CHATML} for name in ("a", "b")])
    refusal = folder_check(str(two)).refusal
    assert refusal is not None
    assert "a, b" in refusal


@pytest.mark.parametrize(
    "expression",
    [
        "tools | tojson(separators=(',', ':'))",
        "tools | tojson(sort_keys=True, indent=2)",
        "tools | tojson(ensure_ascii=True)",
        "tools | tojson(False, 2, (',', ':'), True)",
        "tools",
        "documents is none",
        "documents is defined",
        "bos_token ~ eos_token ~ unk_token",
    ],
)
def test_templates_have_what_transformers_gives_them(expression: str, tmp_path: Path) -> None:
    body = (
        "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {% endgeneration %}{{ x }}"
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}"
        "{% generation %}{{ loop.index }}{{ i }}{% endgeneration %}{% endfor %}\n  {% if true %}\n a{% endif %}\n"
    )
    folder = write(tmp_path, byte_level(), f"{CHATML}{body}{{{{ {expression} }}}}")
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    assert ours(text, [ASKED], [TOOL]) == theirs(tokenizer, text, [ASKED], [TOOL])


PHI3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + '\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)
PHI4 = PHI3.replace("\\n", "").replace(" + '' ", " ")


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if "runc" not in kind and "pad" not in kind])
@pytest.mark.parametrize(
    "template, end, eos",
    [
        (CHATML, "<|im_end|>", "<|im_end|>"),
        (CHATML, "<|im_end|>", "</s>"),
        (PHI3, "<|end|>", "</s>"),
        (PHI4, "<|end|>", "</s>"),
    ],
)
def test_a_turn_goes_on_with_the_tokens_of_the_whole_conversation(
    template: str, end: str, eos: str, kind: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, TOKENIZERS[kind](), template, eos_token=eos)
    vocabulary = TOKENIZERS[kind]().get_vocab()
    ends = [vocabulary[mark] for mark in (end, eos)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for answer in ("2", "it is 2", "2\n", "2 <|user|>"):
        messages = [ASKED, said("assistant", answer), said("user", "Sure?")]
        first, whole = (theirs(tokenizer, text, part, None) for part in ([ASKED], messages))
        request = PromptRequest("", messages, None, {}, [Cut(2, end)], max_tokens=1 << 20)
        prompt = prompt_make(text, request)
        new = memoryview(prompt.new_ids).cast("i").tolist()
        assert prompt.cut == 0
        assert (whole[: len(first)], whole[-len(new) :]) == (first, new)
        sampled = whole[len(first) : -len(new)]
        assert (sampled[-1], sampled.count(ends[0])) == (ends[0], 1)


@pytest.mark.parametrize("kind", ["byte level", "begins", "begins and ends", "first", "truncated", "padded"])
def test_raw_prompts_have_the_beginning_of_the_tokenizer(kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path, TOKENIZERS[kind](), CHATML)
    text, tokenizer = model_text_load(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for raw in ("def f(x):", " x", "<s>a"):
        request = PromptRequest("", (), None, {}, (), max_tokens=1 << 20, text=raw)
        got = memoryview(prompt_make(text, request).new_ids).cast("i").tolist()
        wanted = tokenizer(raw)["input_ids"]
        assert got == (wanted[:-1] if kind == "begins and ends" else wanted)


def test_ids_of_a_vocabulary_with_gaps_are_known_up_to_the_highest(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 7, "<unk>": 100}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<|im_end|>"])
    text = model_text_load(str(write(tmp_path, tokenizer, CHATML)))
    assert text.max_id == max(tokenizer.get_vocab().values()) > tokenizer.get_vocab_size()
