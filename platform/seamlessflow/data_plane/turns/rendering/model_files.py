"""Reads the text files of a model folder as transformers reads them.

Enters: a folder in Hugging Face's layout. Leaves: its tokenizer, its special tokens by name, and its chat templates.
Invariant: a setting in these files means what `AutoTokenizer.from_pretrained` of transformers 5 makes of it. So the
truncation and padding that the last call before `save_pretrained` left in tokenizer.json are ignored, tokens that only
tokenizer_config.json declares are added, and the flags that it gives a token count.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from seamlessflow.core.chat_templates import DEFAULT, ChosenTemplates, NoChatTemplate, templates_choose
from seamlessflow.runtime.json_files import CONFIG_BOUNDS, InvalidJsonFile, json_file_read

TEMPLATE_FILE = "chat_template.jinja"
MORE_TEMPLATES = "additional_chat_templates"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class ModelUnusable(ValueError):
    """The model folder lacks a file or setting that the gateway needs, or has one that it cannot read."""


def json_read(path: Path) -> dict[str, Any]:
    """Return the object in a file; {} if there is no such file. Raises ModelUnusable."""
    if not path.is_file():
        return {}
    try:
        value = json_file_read(path, CONFIG_BOUNDS)
    except InvalidJsonFile as error:
        raise ModelUnusable(f"{path.name} of the model folder is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelUnusable(f"{path.name} of the model folder is not a JSON object")
    return value


def settings_read(folder: Path) -> dict[str, Any]:
    """Return the tokenizer's settings: tokenizer_config.json, and the older special_tokens_map.json where it counts."""
    settings = json_read(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:
        settings |= json_read(folder / "special_tokens_map.json")
    return settings


def templates_read(folder: Path, settings: Mapping[str, Any]) -> ChosenTemplates:
    """Return the chat templates of a folder. Raises ModelUnusable."""
    files = {DEFAULT: folder / TEMPLATE_FILE}
    files |= {file.name.removesuffix(".jinja"): file for file in (folder / MORE_TEMPLATES).glob("*.jinja")}
    try:
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
        return templates_choose(settings.get("chat_template"), texts)
    except UnicodeDecodeError as error:
        raise ModelUnusable(f"a chat template of the model folder is not UTF-8: {error}") from error
    except NoChatTemplate as error:
        raise ModelUnusable(f"the model folder {folder} {error}") from error


def special_tokens(settings: Mapping[str, Any], padding: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the special tokens that a template may use, by name. padding: what tokenizer.json says of it."""
    found = {
        name: _content(value)
        for name, value in settings.items()
        if name in _NAMED_TOKENS or (name.endswith("_token") and isinstance(value, str))
        if value is not None and not isinstance(value, bool)
    }
    more = settings.get("extra_special_tokens")
    if isinstance(more, dict):
        found |= {name: _content(value) for name, value in more.items()}
    if padding and "pad_token" not in settings:
        found["pad_token"] = str(padding["pad_token"])
    return found


def tokenizer_read(folder: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, str]]:
    """Return the tokenizer and its special tokens by name. Raises ModelUnusable."""
    source = folder / "tokenizer.json"
    if versions := settings.get("fast_tokenizer_files"):
        raise ModelUnusable(
            f"tokenizer_config.json of the model folder names {versions!r} as fast_tokenizer_files, of which "
            "transformers chooses by its own release; keep one tokenizer.json and leave the setting out"
        )
    if not source.is_file():
        raise ModelUnusable(
            f"the model folder {folder} has no tokenizer.json; AutoTokenizer.from_pretrained(...) and then "
            "save_pretrained(...) of transformers write one"
        )
    try:
        tokenizer = Tokenizer.from_file(str(source))
    except Exception as error:  # the library raises nothing narrower
        raise ModelUnusable(f"tokenizer.json of the model folder cannot be read: {error}") from error
    named = special_tokens(settings, tokenizer.padding)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens", False))
    _add_tokens(tokenizer, folder, settings, named)
    return tokenizer, named


def _add_tokens(
    tokenizer: Tokenizer, folder: Path, settings: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Add tokens that tokenizer.json lacks, or to which the settings give other flags."""
    known = {repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
    wanted = [token for token in _declared(folder, settings, set(named.values())) if repr(token) not in known]
    names = set(named.values())
    for token in wanted:
        token.special = token.special or token.content in names
    tokenizer.add_tokens(wanted)
    texts = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    extra = settings.get("extra_special_tokens")
    more = extra if extra and isinstance(extra, list) else settings.get("additional_special_tokens") or []
    values = [*map(settings.get, named), *named.values(), *more]
    special = {_content(value): _as_special(value) for value in values if value}
    tokenizer.add_tokens([token for text, token in special.items() if text not in texts])


def _declared(folder: Path, settings: Mapping[str, Any], special: set[str]) -> Iterator[AddedToken]:
    """Yield the tokens that the settings, or the older added_tokens.json, declare, by id."""
    declared = settings.get("added_tokens_decoder")
    if isinstance(declared, dict):
        for _, token in sorted(declared.items(), key=lambda entry: int(entry[0])):
            yield AddedToken(token["content"], **{flag: token[flag] for flag in _FLAGS if flag in token})
        return
    for text, _ in sorted(json_read(folder / "added_tokens.json").items(), key=lambda entry: int(entry[1])):
        yield AddedToken(text, normalized=text not in special, special=text in special)


def _as_special(value: Any) -> AddedToken:
    flags = {flag: value[flag] for flag in _FLAGS if flag in value} if isinstance(value, dict) else {}
    return AddedToken(_content(value), **(flags | {"special": True}))


def _content(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise ModelUnusable(
            f"tokenizer_config.json of the model folder has {token!r} where a token is expected"
        )
    return text
