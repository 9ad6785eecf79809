"""Checks the body of `POST /inference/v1/generate`: bytes enter, a `GenerateRequest` leaves.

Field names and defaults are vLLM's. An option that the engines do not support is refused by name, because dropping it
silently would change the distribution that is trained on.
"""

import math
from typing import Any

import msgspec

MAX_TOP_LOGPROBS = 20
MAX_BIASES = 1024
MAX_STOP_TOKEN_IDS = 256
_PARAMS = "sampling_params"


class InvalidRequestError(ValueError):
    """The request cannot be served as asked; `field` names the field at fault."""

    def __init__(self, *, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 and -1 mean all tokens
    seed: int | None = None
    max_tokens: int | None = None  # None: up to the model's length
    min_tokens: int = 0
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None  # 0: the sampled token only; n: also the n likeliest
    stream_interval: int | None = None  # tokens per streamed chunk
    skip_reading_prefix_cache: bool | None = None
    structured_outputs: dict[str, Any] | None = None  # see core.guidance.guide
    # Known to vLLM's clients; without effect on token ids.
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    flat_logprobs: bool = False
    output_kind: int | None = None
    # Refused unless they have the value that does nothing.
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_p: float = 0.0
    stop: str | list[str] | None = None
    bad_words: list[str] | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None

    @property
    def is_reshaped(self) -> bool:
        """Whether penalties or biases change the distribution."""
        neutral = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) == (0, 0, 1)
        return not neutral or bool(self.logit_bias)

    @property
    def bias(self) -> dict[int, float]:
        return {int(token): value for token, value in (self.logit_bias or {}).items()}


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "min_p": (0.0,),
    "stop": (None, "", []),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
    "prompt_logprobs": (None,),
}


class EngineStreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    token_ids: list[int]
    sampling_params: SamplingParams
    request_id: str | None = None
    model: str | None = None
    stream: bool | None = False
    stream_options: EngineStreamOptions | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    output_mode: str = "tokens"
    features: dict[str, Any] | None = None
    content_parts: list[Any] | None = None
    packed: bool = False  # ours: base64 arrays instead of one JSON object per token
    guided_prefix: int = 0  # ours: how many of the last prompt tokens belong to the guided answer


_decoder = msgspec.json.Decoder(GenerateRequest)


def parse_generate_body(raw: bytes, *, vocab_size: int, max_model_len: int) -> GenerateRequest:
    """Decode and check a body. Raises InvalidRequestError unless the engine can serve it exactly as asked."""
    try:
        body = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(field=_field_of(str(error)), message=str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(field="body", message=f"the body is not JSON: {error}") from error
    _check_prompt(body.token_ids, vocab_size=vocab_size, max_model_len=max_model_len)
    _check_top_level(body)
    _check_sampling(body.sampling_params, vocab_size=vocab_size)
    _check_guided(body)
    return body


def _field_of(message: str) -> str:
    """Return the field that msgspec complains of, as vLLM spells it: `… - at `$.a.top_p`` → `a.top_p`."""
    path = message.rpartition(" - at `$")[2].rstrip("`").removeprefix(".") if " - at `$" in message else ""
    quoted = message.split("`")[1] if message.count("`") >= 2 and "field" in message else ""
    return ".".join(name for name in (path, quoted) if name) or "body"


def _check_prompt(token_ids: list[int], *, vocab_size: int, max_model_len: int) -> None:
    if not token_ids:
        raise InvalidRequestError(field="token_ids", message="token_ids must contain at least one token")
    if len(token_ids) >= max_model_len:
        message = (
            f"token_ids has {len(token_ids)} tokens, but prompt and answer together may have {max_model_len}"
        )
        raise InvalidRequestError(field="token_ids", message=message)
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        message = f"token_ids must lie in 0 … {vocab_size - 1}, got {min(token_ids)} … {max(token_ids)}"
        raise InvalidRequestError(field="token_ids", message=message)


def _check_top_level(body: GenerateRequest) -> None:
    if body.output_mode != "tokens":
        message = f"output_mode must be 'tokens', got {body.output_mode!r}: this engine has no tokenizer"
        raise InvalidRequestError(field="output_mode", message=message)
    if body.cache_salt is not None and not 1 <= len(body.cache_salt) <= 1024:
        raise InvalidRequestError(field="cache_salt", message="cache_salt must have 1 to 1024 characters")
    for field in ("features", "content_parts"):
        if getattr(body, field):
            raise InvalidRequestError(field=field, message=f"{field} is not supported: text models only")


def _check_guided(body: GenerateRequest) -> None:
    """Check that a guided answer can end with its guide. The guide itself is checked where the tokenizer is."""
    params, is_guided = body.sampling_params, body.sampling_params.structured_outputs is not None
    rules = (
        ("guided_prefix", not body.guided_prefix or is_guided, "needs structured_outputs"),
        ("guided_prefix", 0 <= body.guided_prefix < len(body.token_ids), "must be shorter than the prompt"),
        (f"{_PARAMS}.ignore_eos", not (is_guided and params.ignore_eos), "excludes structured_outputs"),
        (f"{_PARAMS}.min_tokens", not (is_guided and params.min_tokens), "excludes structured_outputs"),
    )
    for field, is_valid, rule in rules:
        if not is_valid:
            raise InvalidRequestError(field=field, message=f"{field.rpartition('.')[2]} {rule}")


def _check_sampling(params: SamplingParams, *, vocab_size: int) -> None:
    for field, neutral in _NEUTRAL.items():
        if getattr(params, field) not in neutral:
            message = f"{field} is not supported by the embedded engine; leave it out"
            raise InvalidRequestError(field=f"{_PARAMS}.{field}", message=message)
    stop_ids = params.stop_token_ids or []
    ranges = (
        ("n", params.n == 1, "must be 1: send one request per sample"),
        ("temperature", 0 <= params.temperature <= 2, "must be in [0, 2]"),
        ("top_p", 0 < params.top_p <= 1, "must be in (0, 1]"),
        ("top_k", params.top_k >= -1, "must be -1, 0 (all) or at least 1"),
        ("max_tokens", params.max_tokens is None or params.max_tokens >= 1, "must be at least 1"),
        ("min_tokens", params.min_tokens >= 0, "must not be negative"),
        (
            "min_tokens",
            params.max_tokens is None or params.min_tokens <= params.max_tokens,
            f"must not exceed max_tokens ({params.max_tokens})",
        ),
        ("seed", params.seed is None or -(2**63) <= params.seed < 2**63, "must fit in 64 bits"),
        (
            "logprobs",
            params.logprobs is None or 0 <= params.logprobs <= MAX_TOP_LOGPROBS,
            f"must be in 0 … {MAX_TOP_LOGPROBS}",
        ),
        ("stop_token_ids", len(stop_ids) <= MAX_STOP_TOKEN_IDS, f"may have at most {MAX_STOP_TOKEN_IDS} ids"),
        ("stop_token_ids", all(0 <= i < vocab_size for i in stop_ids), f"must lie in 0 … {vocab_size - 1}"),
        (
            "stream_interval",
            params.stream_interval is None or params.stream_interval >= 1,
            "must be at least 1",
        ),
    )
    for field, is_valid, rule in (*ranges, *_reshaping_rules(params, vocab_size=vocab_size)):
        if not is_valid:
            message = f"{field} {rule}, got {getattr(params, field)}"
            raise InvalidRequestError(field=f"{_PARAMS}.{field}", message=message)
    if math.isnan(params.temperature):
        raise InvalidRequestError(field=f"{_PARAMS}.temperature", message="temperature must be a number")


def _reshaping_rules(params: SamplingParams, *, vocab_size: int) -> tuple[tuple[str, bool, str], ...]:
    bias = params.logit_bias or {}
    is_known = all(token.isascii() and token.isdigit() and int(token) < vocab_size for token in bias)
    return (
        ("presence_penalty", -2 <= params.presence_penalty <= 2, "must be in [-2, 2]"),
        ("frequency_penalty", -2 <= params.frequency_penalty <= 2, "must be in [-2, 2]"),
        ("repetition_penalty", 0 < params.repetition_penalty <= 2, "must be in (0, 2]"),
        ("logit_bias", len(bias) <= MAX_BIASES, f"may have at most {MAX_BIASES} tokens"),
        ("logit_bias", is_known, f"must have token ids in 0 … {vocab_size - 1}"),
        (
            "logit_bias",
            all(-100 <= value <= 100 for value in bias.values()),
            "must have values in [-100, 100]",
        ),
    )
