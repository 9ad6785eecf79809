"""The grammar of an answer that must call tools, in the format that the gateway's parser reads.

It takes the tools that may be called and returns a Lark grammar for a guide of kind `grammar`. The answer is some
reasoning, if the model marks it, and then one or more calls. Markers that are special tokens of the model are named as
tokens, because ordinary text never contains them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.guidance.guide import JSON_WHITESPACE

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"
THINK_BEGIN, THINK_END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class CallableTool:
    name: str
    parameters: Mapping[str, Any]  # JSON schema of its arguments; empty: any object


def tool_call_grammar(
    tools: Sequence[CallableTool],
    *,
    is_special: Callable[[str], bool],
    is_parallel: bool,
    starts_in_reasoning: bool = False,
) -> str:
    """Return the grammar. `is_special` says whether a marker is one special token of the model.

    With `starts_in_reasoning` the prompt has opened the reasoning, so the answer must close it. Without the special
    tokens of reasoning, the answer is calls only.
    """
    calls = r"call (/\n?/ call)*" if is_parallel else "call"
    lines = [
        f"start: {_reasoning(is_special, starts_in_reasoning)}{calls}",
        f"call: {_marker(CALL_BEGIN, is_special)} /\\n?/ body /\\n?/ {_marker(CALL_END, is_special)}",
        f"body: {' | '.join(f'body_{number}' for number in range(len(tools)))}",
    ]
    for number, tool in enumerate(tools):
        schema = {"type": "object"} | dict(tool.parameters)
        schema["x-guidance"] = {"whitespace_pattern": JSON_WHITESPACE}
        head = f'{{"name": {json.dumps(tool.name)}, "arguments": '
        lines.append(f'body_{number}: {json.dumps(head)} args_{number} "}}"')
        lines.append(f"args_{number}: %json {json.dumps(schema)}")
    return "\n".join(lines) + "\n"


def _reasoning(is_special: Callable[[str], bool], is_open: bool) -> str:
    if not (is_special(THINK_BEGIN) and is_special(THINK_END)):
        return ""
    thought = rf"/(.|\n)*/ {THINK_END} /\n{{0,2}}/ "
    return thought if is_open else f"({THINK_BEGIN} {thought})? "


def _marker(text: str, is_special: Callable[[str], bool]) -> str:
    return text if is_special(text) else json.dumps(text)
