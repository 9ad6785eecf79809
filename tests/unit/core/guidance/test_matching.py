"""Masks over real tokenizers: random answers belong to the language, and no answer of the language is excluded."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from seamlessflow.core.guidance.argument_rules import json_text
from seamlessflow.core.guidance.guide import Guide, InvalidGuideError, guide_make
from seamlessflow.core.guidance.masks import MatcherFailedError, TokenNotAllowedError, unpacked_mask
from seamlessflow.core.guidance.matching import Vocabulary
from seamlessflow_workers.example.tokenizer import train_tokenizer
from tests.fixtures.guidance import END, NUM_TOKENS, OTHER_END, allowed_tokens, random_answer, tiny_vocabulary
from tests.fixtures.tiny_text import SPECIAL

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "size": {"type": "integer", "minimum": -5, "maximum": 500},
        "tags": {"type": "array", "items": {"enum": ["ä", "b c"]}, "maxItems": 3},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}
PATTERN = r"(é|[a-f]{2}|[0-9]{1,2}){1,4}!"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return tiny_vocabulary(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def example_tokenizer() -> Tokenizer:
    return train_tokenizer(
        ['<tool_call>{"name": "calculator", "arguments": {"a": 1, "b": 23}}</tool_call>\n'] * 5
    )


def guide(**wanted: Any) -> Guide:
    return guide_make(wanted, end_token_ids=[END, OTHER_END])


def random_text(vocabulary: Vocabulary, tokenizer: Tokenizer, one: Guide, *, seed: int) -> str:
    answer = random_answer(vocabulary, one, seed=seed)
    assert answer[-1] in one.end_token_ids, "the answer never ended"
    assert not set(answer[:-1]) & set(one.end_token_ids)
    text: str = tokenizer.decode(answer[:-1], skip_special_tokens=False)
    return text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_random_answers_belong_to_the_language(example_tokenizer: Tokenizer, seed: int) -> None:
    vocabulary = Vocabulary(example_tokenizer.to_str(), num_tokens=520)

    value = json.loads(random_text(vocabulary, example_tokenizer, guide(json=SCHEMA), seed=seed))
    assert value.keys() <= SCHEMA["properties"].keys()  # type: ignore[attr-defined]
    assert len(value["name"]) <= 6
    assert -5 <= value["size"] <= 500
    assert set(value.get("tags", ())) <= {"ä", "b c"}

    assert re.fullmatch(PATTERN, random_text(vocabulary, example_tokenizer, guide(regex=PATTERN), seed=seed))
    choices = ["yes", 'n"\\o', "ä\n\x01", "yesterday"]
    assert random_text(vocabulary, example_tokenizer, guide(choice=choices), seed=seed) in choices


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.fixed_dictionaries(
        {"name": st.text('ab é"\\', max_size=6), "size": st.integers(-5, 500)},
        optional={"tags": st.lists(st.sampled_from(["ä", "b c"]), max_size=3)},
    ),
    blank=st.sampled_from(["", " "]),
)
def test_no_text_of_the_language_is_excluded(
    example_tokenizer: Tokenizer, value: dict[str, Any], blank: str
) -> None:
    vocabulary = Vocabulary(example_tokenizer.to_str(), num_tokens=520)
    ordered = {name: value[name] for name in ("name", "size", "tags") if name in value}
    tokenizer = vocabulary._tokenizer((END,))
    pieces = {token: tokenizer.decode_bytes([token]) for token in range(512)}
    matcher, rest = (
        vocabulary.matcher(guide(json=SCHEMA)),
        json.dumps(ordered, separators=(f",{blank}", f":{blank}"), ensure_ascii=False).encode(),
    )
    while rest:
        assert not matcher.is_complete
        fitting = [
            token
            for token in allowed_tokens(matcher, num_tokens=520)
            if pieces.get(token) and rest.startswith(pieces[token])
        ]
        token = max(fitting, key=lambda token: len(pieces[token]))
        matcher.consume(token)
        rest = rest[len(pieces[token]) :]
    assert matcher.is_complete
    assert {END, OTHER_END} <= set(allowed_tokens(matcher, num_tokens=520))


def test_masks_depend_on_the_tokens_alone(vocabulary: Vocabulary) -> None:
    one = guide(json=SCHEMA)
    answer = random_answer(vocabulary, one, seed=7)
    growing, masks = vocabulary.matcher(one), []
    for token in answer:
        masks.append(growing.mask().copy())
        growing.consume(token)

    again = Vocabulary(vocabulary._tokenizer_json, num_tokens=NUM_TOKENS)
    for place, mask in enumerate(masks):
        replayed = again.matcher(one)
        replayed.replay(answer[:place])
        assert (replayed.mask() == mask).all()
    growing.rollback(len(answer) - 3)
    assert (growing.mask() == masks[3]).all()


def test_an_ended_answer_takes_nothing_more_until_it_is_rolled_back(vocabulary: Vocabulary) -> None:
    matcher = vocabulary.matcher(guide(regex="a{2}"))
    (token,) = (token for token in allowed_tokens(matcher) if token > 6)
    with pytest.raises(TokenNotAllowedError):
        matcher.consume(END)
    with pytest.raises(TokenNotAllowedError):
        matcher.consume(NUM_TOKENS - 1)
    matcher.replay([token, token])
    assert matcher.is_complete
    assert allowed_tokens(matcher) == [OTHER_END, END]
    matcher.consume(END)
    with pytest.raises(TokenNotAllowedError, match="has ended"):
        matcher.consume(token)
    matcher.rollback(2)
    assert not matcher.is_ended
    assert allowed_tokens(matcher) == [token]
    with pytest.raises(ValueError, match="cannot go back"):
        matcher.rollback(5)


def test_tokens_beyond_the_tokenizer_are_never_allowed(vocabulary: Vocabulary) -> None:
    mask = unpacked_mask(vocabulary.matcher(guide(regex="(.|\n)*")).mask(), num_tokens=NUM_TOKENS)
    assert mask.dtype == np.bool_
    assert mask[len(SPECIAL) : len(SPECIAL) + 94].all()  # printable ASCII
    assert not mask[300:].any()


@pytest.mark.parametrize(
    "wanted",
    [
        {"regex": "("},
        {"regex": "<think>"},
        {"choice": ["<think>a"]},
        {"grammar": "start: nothing"},
        {"grammar": "start: <no_such_token>"},
        {"json": {"type": "strange"}},
        {"json": {"$ref": "http://127.0.0.1/schema"}},
        {"json": {"not": {}}},
    ],
)
def test_guides_that_nothing_can_follow_are_refused(vocabulary: Vocabulary, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidGuideError):
        vocabulary.matcher(guide(**wanted))


@pytest.mark.parametrize(
    "wanted",
    [
        {"regex": "(a|aa)*" * 200 + "b{1,5000}(c{1,5000}d){1,900}"},
        {
            "json": {
                "allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(9)]} for i in range(9)]
            }
        },
        {"json": {"type": "string", "pattern": "^(.*a.{30}b.*){1,30}$"}},
        {"json": {"enum": [str(number) * 20 for number in range(1500)]}},
    ],
)
def test_hostile_guides_cost_little(vocabulary: Vocabulary, wanted: dict[str, Any]) -> None:
    started_s = time.process_time()
    try:
        matcher = vocabulary.matcher(guide(**wanted))
        for _ in range(20):
            matcher.consume(allowed_tokens(matcher)[0])
    except (InvalidGuideError, MatcherFailedError, TokenNotAllowedError):
        pass
    assert time.process_time() - started_s < 2


def test_a_model_with_fewer_tokens_than_its_tokenizer_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidGuideError, match="tokenizer"):
        Vocabulary(vocabulary._tokenizer_json, num_tokens=100).matcher(guide(regex="a"))


def test_reading_a_schema_never_leaves_the_process(tmp_path: Path, vocabulary: Vocabulary) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"type": "integer"}')
    with pytest.raises(InvalidGuideError):
        vocabulary.matcher(guide(json={"$ref": secret.as_uri()}))


def num_accepted(vocabulary: Vocabulary, one: Guide, text: str, tokenizer: Tokenizer) -> int:
    """Return how many characters of a text the guide accepts, one token at a time."""
    matcher, taken = vocabulary.matcher(one), ""
    for token in tokenizer.encode(text, add_special_tokens=False).ids:
        try:
            matcher.consume(token)
        except TokenNotAllowedError:
            break
        taken += tokenizer.decode([token])
    return len(taken)


@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
@pytest.mark.parametrize("is_grammar", [False, True])
def test_blanks_in_json_are_bounded(
    vocabulary: Vocabulary, example_tokenizer: Tokenizer, blank: str, is_grammar: bool
) -> None:
    example = Vocabulary(example_tokenizer.to_str(), num_tokens=example_tokenizer.get_vocab_size())
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1]}, "b": {"type": "array", "items": {"enum": [2]}}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    wanted = {"grammar": f"start: %json {json_text(schema)}\n"} if is_grammar else {"json": schema}
    one = guide_make(wanted, end_token_ids=[0])
    for written in ('{"a":1,"b":[2,2]}', '{"a": 1, "b": [2, 2]}'):
        assert num_accepted(example, one, written, example_tokenizer) == len(written)
    for before in ("", "{", '{"a"', '{"a":', '{"a": 1', '{"a": 1,', '{"a": 1, "b": [', '{"a": 1, "b": [2]'):
        taken = num_accepted(example, one, before + blank * 17, example_tokenizer)
        assert len(before) <= taken < len(before) + 2
