"""Turns text into a model's tokens and back, with the tokenizer, chat template and special tokens of a model folder.

`model_text_load` takes the folder and returns a `ModelText`, cached per folder. The files have Hugging Face's layout:
tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json, config.json.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tokenizers import Tokenizer

from seamlessflow.core.families import ModelFamily, family_find
from seamlessflow.data_plane.turns.rendering.chat_template import ChatTemplate
from seamlessflow.data_plane.turns.rendering.continuation import TailKind
from seamlessflow.data_plane.turns.rendering.parsers.families import Family, family_get

_NUM_CACHED_PROMPTS = 512


class ModelUnusable(ValueError):
    """The model folder lacks a file or setting that the gateway needs."""


@dataclass(frozen=True, slots=True)
class ModelText:
    tokenizer: Tokenizer
    template: ChatTemplate
    end_ids: tuple[int, ...]  # tokens that end a turn
    end_texts: tuple[str, ...]
    hidden_ids: frozenset[int]  # special tokens that are not part of a message
    family: Family  # how it writes reasoning and tool calls
    # Whether a kind of turn can be rendered from its last messages alone; `tails` tries each kind once.
    proven_tails: dict[TailKind, bool] = field(default_factory=dict)

    def encode(self, text: str) -> bytes:
        """Return packed int32 ids. Special tokens in the text are recognised; none are added."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False).ids, dtype="<i4").tobytes()

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
    config = _read_json(path / "tokenizer_config.json")
    source = path / "tokenizer.json"
    if not source.is_file():
        raise ModelUnusable(f"the model folder {folder} has no tokenizer.json")
    tokenizer = Tokenizer.from_file(str(source))
    end_ids = _end_ids(path, config, tokenizer)
    if not end_ids:
        raise ModelUnusable(f"the model folder {folder} names no end-of-turn token (eos_token)")
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    template = _template_source(path, config)
    if family is ModelFamily.AUTO:
        family = family_find(template, lambda token: tokenizer.token_to_id(token) is not None)
    known = family_get(family)
    return ModelText(
        tokenizer=tokenizer,
        template=ChatTemplate(template, _special_tokens(config)),
        end_ids=end_ids,
        end_texts=tuple(str(tokenizer.id_to_token(i)) for i in end_ids),
        hidden_ids=frozenset(special | set(end_ids)) - {tokenizer.token_to_id(mark) for mark in known.marks},
        family=known,
    )


def _template_source(path: Path, config: Mapping[str, Any]) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if not isinstance(source, str):
        raise ModelUnusable(f"the model folder {path} has no chat template")
    return source


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
    return {name: _token_content(config[name]) for name in names if config.get(name)}


def _token_content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _end_ids(path: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> tuple[int, ...]:
    ids: list[int | None] = []
    if config.get("eos_token"):
        ids.append(tokenizer.token_to_id(_token_content(config["eos_token"])))
    for name in ("generation_config.json", "config.json"):
        value = _read_json(path / name).get("eos_token_id")
        ids += value if isinstance(value, list) else [value]
    known = (i for i in ids if i is not None)
    return tuple(dict.fromkeys(i for i in known if tokenizer.id_to_token(i)))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return value
