"""Checks of all dialects: ranges, stop strings, unknown fields, and values that the job overrides.

A field that would change the sampling distribution is either overridden by the job's value, which is recorded with the
turn, or refused by name. Fields that the gateway does not know are listed as ignored. None is dropped silently.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from seamlessflow.data_plane.errors import ApiError, bad_request, param_of

Body = TypeVar("Body")
Number = TypeVar("Number", int, float)
MAX_CHOICES = 64
MAX_STOP_STRINGS = 4
MAX_TOP_LOGPROBS = 20
MAX_MESSAGES = 16_384  # each costs the event loop a few microseconds, even if it is short
# Values that OpenAI's API or vLLM accepts. Others are refused even though the job's own value is used.
OPENAI_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (-1, 1 << 31),
    "min_p": (0, 1),
}
LOGIT_BIAS = "logit_bias"
MAX_BIASES = 1024
# Lowest and highest value, and the one without effect.
PENALTIES = {
    "frequency_penalty": (-2.0, 2.0, 0.0),
    "presence_penalty": (-2.0, 2.0, 0.0),
    "repetition_penalty": (0.01, 2.0, 1.0),
}
PENALTY_RANGES = {name: (low, high) for name, (low, high, _) in PENALTIES.items()}

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def body_read(read: Callable[[bytes], Body], raw: bytes, *, kind: str) -> Body:
    """Decode a body with `read`. Raises ApiError (400), which names the field."""
    try:
        return read(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if (field := _half_pair(raw)) is not None:
            raise bad_request(
                f"{field} contains half of a surrogate pair, which no text does.", param=field
            ) from error
        if (problem := _not_text(raw)) is not None:
            raise bad_request(f"The request body {problem}.") from error
        raise bad_request(
            f"The request body is not a valid {kind}: {error}.", param=param_of(str(error))
        ) from error
    except RecursionError as error:
        raise bad_request("The request body is nested too deeply.") from error


def _not_text(raw: bytes) -> str | None:
    """Return why a body is no text in UTF-8, which JSON is; None if it is one."""
    if not raw.strip():
        return "is empty"
    if raw.startswith(BOM_UTF8):
        return "begins with a byte order mark; send UTF-8 without one"
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}, which belongs to no character there"
    return None


def _half_pair(raw: bytes) -> str | None:
    """Return the field of a body in which half of a surrogate pair is written; None if there is none."""
    if not _SURROGATE.search(raw):
        return None
    try:
        return _field_of_half(json.loads(raw), "")
    except (ValueError, RecursionError):
        return None


def _field_of_half(value: Any, field: str) -> str | None:
    if isinstance(value, str):
        return field if any("\ud800" <= char <= "\udfff" for char in value) else None
    if isinstance(value, dict):
        if any(_field_of_half(name, "name") for name in value):
            return f"a name in {field}" if field else "a field's name"
        inner = [(f"{field}.{name}".lstrip("."), entry) for name, entry in value.items()]
    else:
        inner = [
            (f"{field}[{at}]", entry) for at, entry in enumerate(value if isinstance(value, list) else ())
        ]
    return next(filter(None, (_field_of_half(entry, name) for name, entry in inner)), None)


def unknown_fields(
    raw: bytes, kind: type[msgspec.Struct], nested: Mapping[str, type[msgspec.Struct]]
) -> Iterator[str]:
    """Yield the fields of a body that `kind` lacks, and those of its objects in `nested` as "object.field"."""
    fields = _decode_fields(raw)
    yield from (name for name in fields if name not in kind.__struct_fields__)
    for field, inner in nested.items():
        names = _decode_object(fields.get(field, b"null")) or {}
        yield from (f"{field}.{name}" for name in names if name not in inner.__struct_fields__)


def unsupported(field: str, instead: str) -> ApiError:
    return bad_request(f"{field} is not supported; {instead}.", param=field, code="unsupported_parameter")


def refuse_unless_neutral(body: msgspec.Struct, neutral: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse fields with a value that would have an effect. Raises ApiError (400)."""
    for field, values in neutral.items():
        if getattr(body, field) not in values:
            raise unsupported(field, f"leave it out or send {_shown(values)}")


def _shown(accepted: Iterable[object]) -> str:
    return " or ".join(msgspec.json.encode(value).decode() for value in accepted)


def bounded(field: str, value: Number | None, low: Number, high: Number, *, default: Number) -> Number:
    if value is None:
        return default
    if not low <= value <= high:
        raise bad_request(f"{field} must be from {low} to {high}, got {value}.", param=field)
    return value


def tokens_limit(field: str, value: int | None) -> int | None:
    return None if value is None else bounded(field, value, 1, 1 << 31, default=1)


def stop_strings(field: str, stop: str | list[str] | None, *, limit: int) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > limit:
        raise bad_request(f"{field} may have at most {limit} strings, got {len(strings)}.", param=field)
    if not all(strings):
        raise bad_request(f"{field} must not contain an empty string.", param=field)
    return strings


def check_ranges(body: msgspec.Struct, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse values that no API accepts, even though the job's own are used. Raises ApiError (400)."""
    for field, (low, high) in ranges.items():
        bounded(field, getattr(body, field), low, high, default=low)


def reshaping(body: msgspec.Struct) -> dict[str, Any]:
    """Return the penalties and biases of a body that have an effect. Raises ApiError (400)."""
    check_ranges(body, PENALTY_RANGES)
    asked: dict[str, Any] = {
        name: value
        for name, (_, _, neutral) in PENALTIES.items()
        if (value := getattr(body, name)) is not None and value != neutral
    }
    bias: Mapping[str, float] = getattr(body, LOGIT_BIAS) or {}
    if len(bias) > MAX_BIASES or not all(map(_is_bias, bias.items())):
        raise bad_request(
            f"logit_bias must have at most {MAX_BIASES} token ids, with values from -100 to 100.",
            param="logit_bias",
        )
    return asked | ({"logit_bias": dict(bias)} if bias else {})


def _is_bias(entry: tuple[str, float]) -> bool:
    return entry[0].isascii() and entry[0].isdigit() and -100 <= entry[1] <= 100


def overridden_flags(body: msgspec.Struct, temperature: float) -> dict[str, Any]:
    """Return the flag that records which sampling values of the body the job overrides."""
    fixed = {"temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    asked = {name: getattr(body, name, None) for name in fixed}
    overridden = {
        name: value
        for name, value in asked.items()
        if value is not None and value != fixed[name] and not (name == "top_k" and value == 0)
    }
    return {"overridden": overridden} if overridden else {}
