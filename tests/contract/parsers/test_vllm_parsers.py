"""Our parsers and vLLM's find the same in the same answers, apart from the listed exceptions (`Case.vllm`).

Reasoning is compared where the answer marks it: without marks, some of vLLM's reasoning parsers take the whole answer
for reasoning, because their models' prompts open it. gpt-oss is left out: vLLM parses its token ids with a vocabulary
that it downloads.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.core.families import ModelFamily
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get
from tests.fixtures.family_cases import CASES, TOOLS, Case
from tests.fixtures.vllm_servers import vllm_environment

TIMEOUT_S = 300
# The parsers of tool calls and of reasoning that vLLM's documentation names for each family.
VLLM_PARSERS = {
    ModelFamily.HERMES: ("hermes", "deepseek_r1"),
    ModelFamily.QWEN3_CODER: ("qwen3_coder", "qwen3"),
    ModelFamily.GLM: ("glm45", "glm45"),
    ModelFamily.LLAMA3: ("llama3_json", "deepseek_r1"),
    ModelFamily.DEEPSEEK_V3: ("deepseek_v3", "deepseek_r1"),
    ModelFamily.DEEPSEEK_V31: ("deepseek_v31", "deepseek_r1"),
    ModelFamily.KIMI_K2: ("kimi_k2", "kimi_k2"),
    ModelFamily.MISTRAL: ("mistral", "mistral"),
}
COMPARED = [case for case in CASES if case.family in VLLM_PARSERS]
pytestmark = pytest.mark.timeout(TIMEOUT_S)


@pytest.fixture(scope="module")
def vllm_answers(vllm_interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask vLLM's parsers once for all cases; return their answers by the cases' titles."""
    folder = tmp_path_factory.mktemp("parsers")
    cases, answers = folder / "cases.json", folder / "answers.json"
    cases.write_text(json.dumps({"tools": TOOLS, "cases": [_asked(case) for case in COMPARED]}))
    program = Path(__file__).with_name("ask_vllm.py")
    subprocess.run(
        [vllm_interpreter, str(program), str(cases), str(answers)],
        env=vllm_environment(),
        check=True,
        timeout=TIMEOUT_S,
    )
    titles = [case.title for case in COMPARED]
    return dict(zip(titles, json.loads(answers.read_text()), strict=True))


def _asked(case: Case) -> dict[str, Any]:
    tool_parser, reasoning_parser = VLLM_PARSERS[case.family]
    return {
        "text": case.text,
        "marks": sorted(family_get(case.family).marks),
        "tool_parser": tool_parser,
        "reasoning_parser": reasoning_parser if case.reasoning else None,
    }


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.title)
def test_vllm_finds_the_same(case: Case, vllm_answers: dict[str, Any]) -> None:
    answer = vllm_answers[case.title]
    calls = tuple((name, _arguments(arguments)) for name, arguments in answer["calls"])
    found = (answer["reasoning"], answer["content"], calls)
    ours = (case.reasoning, case.content, case.calls)
    assert (found == ours) == (not case.vllm), (
        f"vLLM: {found}; expected: {ours}; exception: {case.vllm or 'none'}"
    )


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
