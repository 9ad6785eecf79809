"""The rules by which tokenizers of GGUF files split text: what transformers does not know is corrected or refused."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from seamlessflow_workers.train.gguf_splits import MODEL, RULE, splits_correct

LIST = "Two:\n\n12 apples"


def pieces(rule: str | None, *, model: str = "gpt2") -> list[str]:
    """Return the pieces of LIST, with the signs for spaces and new lines in a vocabulary of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # as transformers makes it
    splits_correct(tokenizer, {MODEL: model, **({} if rule is None else {RULE: rule})})
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(LIST)]


def test_digits_are_split_first_where_the_file_says_so() -> None:
    # An empty line before a number is one token of SmolLM2, but two if GPT-2's rule splits it.
    assert pieces("smollm") == ["Two", ":", "ĊĊ", "1", "2", "Ġapples"]


@pytest.mark.parametrize("rule", [None, "default", "gpt-2", "qwen2"])
def test_a_rule_that_transformers_knows_is_left_to_it(rule: str | None) -> None:
    assert pieces(rule) == ["Two", ":", "Ċ", "Ċ", "12", "Ġapples"]


def test_a_vocabulary_without_bytes_has_no_rule() -> None:
    assert pieces("smollm", model="llama") == pieces(None)


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre is 'bloom-2', .*accepted: .*gpt-2.*smollm"):
        pieces("bloom-2")
