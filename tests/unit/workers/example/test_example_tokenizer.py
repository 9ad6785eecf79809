"""Template and tokenizer of the example model: short, prefix-stable, and read by a Hermes-style parser."""

import itertools
import json
import re
from typing import Any

import pytest
from tokenizers import Tokenizer

from seamlessflow_workers.agents.environments.calc_tool import CALC_TOOL
from seamlessflow_workers.example.tasks import ExampleEnvironment
from seamlessflow_workers.example.tokenizer import SPECIAL_TOKENS, VOCABULARY_SIZE, train_tokenizer
from seamlessflow_workers.example.transcripts import ChatTemplate, Stage, Transcript, iter_transcripts

MAX_TOOLS_TOKENS = 60
MAX_CALL_TOKENS = 20
MAX_PROMPT_TOKENS = 90
MAX_EPISODE_TOKENS = 160
HERMES_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
ASSISTANT_HEADER = "<|im_start|>assistant\n"

TEMPLATE = ChatTemplate()
CALL = {"name": "calc", "arguments": '{"expression": "285*966"}'}
QUESTION = {"role": "user", "content": "What is 285*966?"}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be exact, é."},
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "1", "content": "275310"},
    {"role": "tool", "tool_call_id": "2", "content": "error"},
    {"role": "assistant", "content": "275310"},
    {"role": "user", "content": "Thanks.\n\nAnd 2*3?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [{"function": CALL}, {"function": CALL}]},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(
        TEMPLATE.render(transcript)
        for environment in ExampleEnvironment
        for transcript in iter_transcripts(environment, Stage.MIXTURE, num_transcripts=1000, seed=0)
    )


def render(messages: list[dict[str, Any]], *, is_prompt: bool = False, has_tools: bool = True) -> str:
    tools = [CALC_TOOL] if has_tools else None
    return TEMPLATE.render(Transcript(messages, tools), is_generation_prompt_added=is_prompt)


def num_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text).ids)


@pytest.mark.parametrize("has_tools", [True, False])
def test_a_longer_conversation_only_appends(tokenizer: Tokenizer, has_tools: bool) -> None:
    texts = [render(CONVERSATION[:length], has_tools=has_tools) for length in range(1, len(CONVERSATION) + 1)]
    for shorter, longer in itertools.pairwise(texts):
        assert longer.startswith(shorter)
        shorter_ids = tokenizer.encode(shorter).ids
        assert tokenizer.encode(longer).ids[: len(shorter_ids)] == shorter_ids


def test_what_the_model_says_is_what_lies_between_header_and_end(tokenizer: Tokenizer) -> None:
    for length, message in enumerate(CONVERSATION):
        if message["role"] != "assistant":
            continue
        prompt = render(CONVERSATION[:length], is_prompt=True)
        assert prompt.endswith(ASSISTANT_HEADER)
        said = render(CONVERSATION[: length + 1]).removeprefix(prompt)
        assert said.endswith("<|im_end|>\n")
        assert said.count("<|im_end|>") == 1
        assert (
            tokenizer.encode(prompt).ids + tokenizer.encode(said).ids == tokenizer.encode(prompt + said).ids
        )


def test_token_budgets(tokenizer: Tokenizer) -> None:
    with_tools = num_tokens(tokenizer, render([QUESTION]))
    assert with_tools - num_tokens(tokenizer, render([QUESTION], has_tools=False)) <= MAX_TOOLS_TOKENS
    prompt = render([QUESTION], is_prompt=True)
    assert num_tokens(tokenizer, prompt) <= MAX_PROMPT_TOKENS
    assert num_tokens(tokenizer, render(CONVERSATION[1:3]).removeprefix(prompt)) <= MAX_CALL_TOKENS
    episode = render([*CONVERSATION[1:4], CONVERSATION[5]])
    assert num_tokens(tokenizer, episode) <= MAX_EPISODE_TOKENS


def test_a_hermes_parser_reads_the_calls_back() -> None:
    said = render(CONVERSATION)
    calls = [json.loads(whole or cut) for whole, cut in HERMES_CALL.findall(said)]
    assert calls == [{"name": "calc", "arguments": {"expression": "285*966"}}] * 3


def test_arguments_as_text_and_as_an_object_render_alike() -> None:
    as_object = {"name": "calc", "arguments": {"expression": "285*966"}}
    texts = [
        render([QUESTION, {"role": "assistant", "content": content, "tool_calls": [{"function": function}]}])
        for function in (CALL, as_object)
        for content in (None, "")
    ]
    assert len(set(texts)) == 1


def test_tools_are_shown_as_plain_json() -> None:
    block = re.search(r"<tools>(.*)</tools>", render([QUESTION]))
    assert block is not None
    assert json.loads(block.group(1)) == CALC_TOOL


@pytest.mark.parametrize(
    "text", ["", "12345", "é 漢字 \x00 \n\n\t x", "<tool_call>{}</tool_call> tail", "a" * 300]
)
def test_any_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_digits_and_specials_are_single_tokens_of_their_own(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    for special in SPECIAL_TOKENS:
        assert num_tokens(tokenizer, special) == 1
    with_digits = [token for token in tokenizer.get_vocab() if re.search(r"\d", token)]
    assert sorted(with_digits) == list("0123456789")


def test_training_the_tokenizer_is_deterministic(tokenizer: Tokenizer) -> None:
    again = train_tokenizer(
        TEMPLATE.render(transcript)
        for environment in ExampleEnvironment
        for transcript in iter_transcripts(environment, Stage.MIXTURE, num_transcripts=1000, seed=0)
    )
    assert again.to_str() == tokenizer.to_str()
