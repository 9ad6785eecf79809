"""Which family a chat template or a tokenizer belongs to."""

import pytest

from seamlessflow.core.families import FAMILY_TITLES, ModelFamily, family_find


@pytest.mark.parametrize(
    "template,family",
    [
        ("<tool_call>{{ call | tojson }}</tool_call>", ModelFamily.HERMES),
        ("<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>", ModelFamily.QWEN3_CODER),
        ("<tool_call>{{ name }}<arg_key>{{ key }}</arg_key><arg_value>", ModelFamily.GLM),
        ("<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>", ModelFamily.KIMI_K2),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name }}\n```json\n", ModelFamily.DEEPSEEK_V3),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>{{ arguments }}", ModelFamily.DEEPSEEK_V31),
        ("[TOOL_CALLS]{{ name }}[ARGS]", ModelFamily.MISTRAL),
        ("<|start|>assistant<|channel|>final<|message|>", ModelFamily.GPT_OSS),
        ('<|start_header_id|>{{ role }}{"name": "f", "parameters": {{ arguments }}}', ModelFamily.LLAMA3),
        ("{{ messages }}", ModelFamily.HERMES),
    ],
)
def test_a_template_shows_its_family(template: str, family: ModelFamily) -> None:
    assert family_find(template, lambda token: False) is family


@pytest.mark.parametrize(
    "token,family",
    [
        ("<|tool_call_argument_begin|>", ModelFamily.KIMI_K2),
        ("<｜tool▁sep｜>", ModelFamily.DEEPSEEK_V3),
        ("[TOOL_CALLS]", ModelFamily.MISTRAL),
        ("<|constrain|>", ModelFamily.GPT_OSS),
        ("<|python_tag|>", ModelFamily.LLAMA3),
        ("<|im_start|>", ModelFamily.HERMES),
    ],
)
def test_tokens_decide_if_the_template_writes_no_calls(token: str, family: ModelFamily) -> None:
    assert family_find("{{ messages }}", lambda asked: asked == token) is family


def test_every_family_has_a_title() -> None:
    assert FAMILY_TITLES.keys() == set(ModelFamily) - {ModelFamily.AUTO}
