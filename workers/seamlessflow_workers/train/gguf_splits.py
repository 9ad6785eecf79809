"""How the tokenizer of a GGUF file splits text before it merges bytes, where transformers gets it wrong.

Takes the tokenizer that transformers made and the file's metadata; changes that tokenizer object. A file has only the
name of its rule (`tokenizer.ggml.pre`), as llama.cpp knows it, and transformers silently takes GPT-2's rule for every
name that it does not know. Invariant: text becomes the tokens that the model was trained on, or the file is refused.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

MODEL, RULE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
BYTE_LEVEL = "gpt2"  # a value of MODEL; other vocabularies have no such rule
# GPT-2's own rule; `default` is what converters write when they know none.
AS_GPT2 = frozenset({"default", "gpt-2", "jais", "mpt", "olmo", "phi-2", "trillion"})
# Every digit by itself, and GPT-2's rule for the text between digits.
DIGITS_ALONE = frozenset({"codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder"})


def splits_correct(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> None:
    """Raises ValueError if the file's rule is not known."""
    rule = metadata.get(RULE, "default")
    if metadata.get(MODEL) != BYTE_LEVEL or rule in AS_GPT2 or rule in GGUF_PRE_TOKENIZER_SPLITS:
        return
    if rule not in DIGITS_ALONE:
        accepted = ", ".join(sorted(AS_GPT2 | DIGITS_ALONE | GGUF_PRE_TOKENIZER_SPLITS.keys()))
        raise ValueError(f"{RULE} is {rule!r}, which is no known way to split text; accepted: {accepted}")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
