"""Which of a model's chat templates renders a conversation, by the rule of transformers.

Enters: what tokenizer_config.json has under `chat_template`, and the template files of the model folder by name.
Leaves: one template for conversations with tools and one for those without. Invariant: files win over the
configuration, `tool_use` is for conversations with tools, and a folder with a single template uses it for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT = "default"
TOOL_USE = "tool_use"


class NoChatTemplate(ValueError):
    """No template can be chosen; the message completes "the model folder …"."""


@dataclass(frozen=True, slots=True)
class ChosenTemplates:
    plain: str  # for conversations without tools
    with_tools: str


def templates_choose(configured: Any, files: Mapping[str, str]) -> ChosenTemplates:
    """Choose among the templates of a folder. Raises NoChatTemplate.

    files: chat_template.jinja is `default`; those in additional_chat_templates have the names of their files.
    """
    named = dict(files) or _configured(configured)
    if not named:
        raise NoChatTemplate(
            "has no chat template; add a chat_template.jinja, or set the tokenizer's chat_template and save it"
        )
    plain = named.get(DEFAULT)
    if plain is None:
        if len(named) > 1:
            raise NoChatTemplate(
                f"has several chat templates ({', '.join(sorted(named))}) but none with the name {DEFAULT!r}; "
                f"name one of them {DEFAULT!r}"
            )
        plain = next(iter(named.values()))
    return ChosenTemplates(plain, named.get(TOOL_USE, plain))


def _configured(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        if not all(isinstance(entry, dict) and {"name", "template"} <= entry.keys() for entry in value):
            raise NoChatTemplate("lists chat templates of which one lacks its `name` or its `template`")
        value = {str(entry["name"]): entry["template"] for entry in value}
    if not isinstance(value, dict) or not all(isinstance(template, str) for template in value.values()):
        raise NoChatTemplate("has a chat_template that is neither a text nor a list of named texts")
    return value
