"""Turns text into a model's tokens and back, with the tokenizer, chat template and special tokens of a model folder.

`model_text_load` takes the folder and returns a `ModelText`, cached per folder. `model_files` reads them.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from seamlessflow.core.families import ModelFamily, family_find
from seamlessflow.core.model_config import text_config_of
from seamlessflow.data_plane.turns.rendering.chat_template import ChatTemplate
from seamlessflow.data_plane.turns.rendering.continuation import TailKind
from seamlessflow.data_plane.turns.rendering.model_files import (
    ModelUnusable,
    json_read,
    settings_read,
    templates_read,
    tokenizer_read,
)
from seamlessflow.data_plane.turns.rendering.parsers.families import Family, family_get


@dataclass(frozen=True, slots=True)
class ModelText:
    tokenizer: Tokenizer
    template: ChatTemplate
    end_ids: tuple[int, ...]  # tokens that end a turn
    end_texts: tuple[str, ...]
    special_texts: tuple[str, ...]
    hidden_ids: frozenset[int]  # special tokens that are not part of a message
    family: Family  # how it writes reasoning and tool calls
    beginning: bytes  # packed ids with which the tokenizer begins every text of its own accord, as a BOS
    max_id: int  # the highest token id; ids may have gaps
    neutral_mark: str  # a special token that takes no white space beside it; "" if there is none
    # Whether a kind of turn can be rendered from its last messages alone; `tails` tries each kind once.
    proven_tails: dict[TailKind, bool] = field(default_factory=dict)
    traits: dict[str, bool] = field(default_factory=dict)  # what `template_traits` found by rendering

    def encode(self, text: str, *, after: str = "") -> bytes:
        """Return packed int32 ids. Special tokens in the text are recognised; none are added.

        after: the special token that precedes the text. Some tokenizers mark the beginning of a text, and some tokens
        take the white space after them, so a text that goes on is not always encoded as one that begins.
        """
        if not after:
            return _packed(self.tokenizer.encode(text, add_special_tokens=False).ids)
        before = self.encode(after)
        both = self.encode(after + text)
        return both[len(before) :] if both.startswith(before) else self.encode(text)

    def encode_raw(self, text: str) -> bytes:
        """Return the packed ids of a text that no template wrote, with the tokenizer's own beginning."""
        return self.beginning + self.encode(text)

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a marker."""
        return tuple(np.frombuffer(self.encode(text), dtype="<i4").tolist())

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return a message's text without special tokens, but with the marks that its family's parser reads."""
        hidden = self.hidden_ids
        text: str = self.tokenizer.decode(
            [i for i in token_ids if i not in hidden], skip_special_tokens=False
        )
        return text


@functools.lru_cache(maxsize=64)
def model_text_load(folder: str, family: ModelFamily = ModelFamily.AUTO) -> ModelText:
    """Load a model folder's text files. Raises ModelUnusable, which names the missing file.

    family: named by the job; `auto`: found by the chat template and the tokens.
    """
    path = Path(folder)
    settings = settings_read(path)
    tokenizer, named = tokenizer_read(path, settings)
    end_ids = _end_ids(path, named, tokenizer)
    if not end_ids:
        raise ModelUnusable(
            f"the model folder {folder} names no end-of-turn token that its tokenizer has; set eos_token in "
            "tokenizer_config.json, or eos_token_id in generation_config.json"
        )
    special = {i: token for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    neutral = (token.content for token in special.values() if not (token.lstrip or token.rstrip))
    templates = templates_read(path, settings)
    if family is ModelFamily.AUTO:
        family = family_find(templates.with_tools, lambda token: tokenizer.token_to_id(token) is not None)
    known = family_get(family)
    return ModelText(
        tokenizer=tokenizer,
        template=ChatTemplate(
            templates.plain,
            named,
            with_tools=templates.with_tools,
            has_text_arguments=known.has_text_arguments,
        ),
        end_ids=end_ids,
        end_texts=tuple(str(tokenizer.id_to_token(i)) for i in end_ids),
        special_texts=tuple(token.content for token in special.values()),
        hidden_ids=frozenset({*special, *end_ids}) - {tokenizer.token_to_id(mark) for mark in known.marks},
        family=known,
        beginning=_beginning(tokenizer),
        max_id=max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1),
        neutral_mark=next(neutral, ""),
    )


def _packed(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype="<i4").tobytes()


def _beginning(tokenizer: Tokenizer) -> bytes:
    """Return the tokens that the tokenizer's post-processor puts before a text. Those behind one would end a prompt."""
    whole = tokenizer.encode("a", add_special_tokens=True)
    own = [at for at, is_added in enumerate(whole.special_tokens_mask) if not is_added]
    return _packed(whole.ids[: own[0]]) if own else b""


def _end_ids(path: Path, named: Mapping[str, str], tokenizer: Tokenizer) -> tuple[int, ...]:
    ids: list[Any] = [tokenizer.token_to_id(named["eos_token"])] if "eos_token" in named else []
    for name in ("generation_config.json", "config.json"):
        found = json_read(path / name)
        for value in (found.get("eos_token_id"), text_config_of(found).get("eos_token_id")):
            ids += value if isinstance(value, list) else [value]
    known = (i for i in ids if type(i) is int and i >= 0)
    return tuple(dict.fromkeys(i for i in known if tokenizer.id_to_token(i)))
