"""`python ask_vllm.py CASES ANSWERS`, run by an interpreter that has vLLM: parses texts with vLLM's own parsers.

CASES is a JSON file with tools and cases; ANSWERS gets reasoning, content and calls of each case. The stand-in for a
tokenizer knows a family's marks as single tokens and every other character as another.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager


class MarkTokenizer:
    """As much of a tokenizer as the parsers use."""

    chat_template = ""
    eos_token_id = bos_token_id = None

    def __init__(self, marks: list[str]) -> None:
        self._ids = {mark: number for number, mark in enumerate(marks)}
        self._pattern = re.compile(
            "|".join([*map(re.escape, sorted(marks, key=len, reverse=True)), "."]), re.DOTALL
        )
        self.all_special_tokens, self.all_special_ids = marks, list(self._ids.values())

    def get_vocab(self) -> dict[str, int]:
        return self._ids

    @property
    def vocab(self) -> dict[str, int]:
        return self._ids

    def encode(self, text: str, **options: Any) -> list[int]:
        return [self._ids.setdefault(piece, len(self._ids)) for piece in self._pattern.findall(text)]

    def decode(self, token_ids: Any, **options: Any) -> str:
        pieces = list(self._ids)
        return "".join(pieces[i] for i in ([token_ids] if isinstance(token_ids, int) else token_ids))

    def convert_ids_to_tokens(self, token_ids: list[int], **options: Any) -> list[str]:
        return [self.decode(i) for i in token_ids]


def main() -> None:
    content = json.loads(Path(sys.argv[1]).read_text())
    answers = [_answer(case, content["tools"]) for case in content["cases"]]
    Path(sys.argv[2]).write_text(json.dumps(answers))


def _answer(case: dict[str, Any], tools: list[Any]) -> dict[str, Any]:
    made = ParserManager.get_parser(
        tool_parser_name=case["tool_parser"],
        reasoning_parser_name=case["reasoning_parser"],
        enable_auto_tools=True,
        model_name="any",
    )
    request = ChatCompletionRequest(model="any", messages=[{"role": "user", "content": "?"}], tools=tools)
    tokenizer = MarkTokenizer(case["marks"])
    parser = made(tokenizer, tools=request.tools)
    token_ids = tokenizer.encode(case["text"])
    reasoning, said, calls = parser.parse(
        case["text"], request, enable_auto_tools=True, model_output_token_ids=token_ids
    )
    return {
        "reasoning": reasoning or "",
        "content": said or "",
        "calls": [[call.name, call.arguments] for call in calls or []],
    }


if __name__ == "__main__":
    main()
