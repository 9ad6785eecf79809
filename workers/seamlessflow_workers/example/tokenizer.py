"""The example model's tokenizer: byte-level BPE over the environment's own transcripts.

Each digit is a token and a newline always ends one, so no token spans template text and the model's own text. Merges
may cross spaces, so the fixed text of the template becomes a handful of tokens.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from seamlessflow_workers.example.transcripts import TEMPLATE_PATH

VOCABULARY_SIZE = 512
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = (PAD, START, END)
MARKUP_TOKENS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
SPECIAL_TOKENS = (*CONTROL_TOKENS, *MARKUP_TOKENS)
PIECES = Regex(r"\d|[^\d\n]*\n|[^\d\n]+")
BETWEEN_SPECIALS = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
PROSE = (  # fills the vocabulary with common syllables, so that any text costs fewer tokens than bytes
    "The quick answer is that you can use the tool to work out the result, and then say what it is.",
    "There is no other way for this model to learn which of these numbers are right and which are wrong.",
    "I think that we should first look at the question, then call the function with both of its numbers.",
    "Hello! How are you today? Please tell me more about what happened when they were here before.",
    "In the morning the people of the town came together near the river and talked about the weather.",
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The trainer ignores special tokens, so it learns from the text between them, as the encoder will see it.
    fragments = (fragment for text in texts for fragment in BETWEEN_SPECIALS.split(text) if fragment)
    words = (word for sentence in PROSE for word in re.findall(r" ?\w+|[^\w ]", sentence))
    tokenizer.train_from_iterator([*fragments, *words], trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the files that `AutoTokenizer` and every engine read."""
    tokenizer.save(str(folder / "tokenizer.json"))
    template = TEMPLATE_PATH.read_text()
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "bos_token": None,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    (folder / "chat_template.jinja").write_text(template)
