"""Google's Gemini API as the gateway reads and answers it: the fields that can change an answer.

Names are written as in Google's JSON, in camel case; requests may also write them in snake case. Contents, tools and
schemas stay plain objects, because the member of each part shows its kind.
"""

from typing import Any, Literal

import msgspec

FinishReason = Literal["STOP", "MAX_TOKENS"]


class GeminiThinking(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    include_thoughts: bool | None = None  # true: the answer shows them, as parts with `thought`
    thinking_budget: int | None = None  # without effect
    thinking_level: str | None = None  # without effect


class GeminiConfig(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    candidate_count: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    response_mime_type: str | None = None  # `text/plain` or `application/json`
    response_schema: dict[str, Any] | None = None  # the answer follows it
    response_json_schema: dict[str, Any] | None = None  # the same, as JSON schema
    response_logprobs: bool | None = None
    logprobs: int | None = None  # likeliest tokens with each token
    thinking_config: GeminiThinking | None = None
    seed: int | None = None  # recorded
    response_modalities: list[str] | None = None  # refused unless it is TEXT alone
    # They change the answer, which is then not trained.
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    # Overridden by the job.
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None


class GeminiBody(msgspec.Struct, kw_only=True, rename="camel"):
    """The body of `generateContent` and `streamGenerateContent`.

    Parts are `text` (with `thought`: reasoning), `functionCall` and `functionResponse`; others are refused. Tools are
    `functionDeclarations`, with `parameters` or `parametersJsonSchema`; `googleSearch` and `urlContext` are not offered
    to the policy and named as ignored, other tools are refused. Any other field is ignored, and the response header
    `X-SeamlessFlow-Ignored` names it.
    """

    contents: list[dict[str, Any]] | dict[str, Any] | str
    system_instruction: dict[str, Any] | str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_config: dict[str, Any] | None = None  # functionCallingConfig: mode, allowedFunctionNames
    generation_config: GeminiConfig | None = None
    cached_content: str | None = None  # refused: the gateway keeps none


class GeminiTokensBody(msgspec.Struct, kw_only=True, rename="camel"):
    """The body of `countTokens`: contents alone, or a whole request."""

    contents: list[dict[str, Any]] | None = None
    generate_content_request: dict[str, Any] | None = None


class GeminiTokens(msgspec.Struct, kw_only=True, rename="camel"):
    total_tokens: int


class GeminiContent(msgspec.Struct, kw_only=True):
    role: Literal["model"] = "model"
    parts: list[dict[str, Any]]  # `text`, or `functionCall` with id, name and args


class GeminiTokenLogprob(msgspec.Struct, kw_only=True, rename="camel"):
    token: str
    log_probability: float


class GeminiTops(msgspec.Struct, kw_only=True):
    candidates: list[GeminiTokenLogprob]


class GeminiLogprobs(msgspec.Struct, kw_only=True, rename="camel"):
    chosen_candidates: list[GeminiTokenLogprob]
    top_candidates: list[GeminiTops]


class GeminiCandidate(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    content: GeminiContent
    index: int | None = None
    finish_reason: FinishReason | None = None
    logprobs_result: GeminiLogprobs | None = None


class GeminiUsage(msgspec.Struct, kw_only=True, rename="camel"):
    prompt_token_count: int
    candidates_token_count: int  # without reasoning
    total_token_count: int
    thoughts_token_count: int
    cached_content_token_count: int  # of the prompt, that the session's tree had before this turn


class GeminiAnswer(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A whole answer, or one chunk of a stream; only the last chunk has finish reasons and usage."""

    candidates: list[GeminiCandidate]
    usage_metadata: GeminiUsage | None = None
    model_version: str
    response_id: str


class GeminiModel(msgspec.Struct, kw_only=True, rename="camel"):
    name: str  # `models/` and the name of the job
    display_name: str
    version: str = "policy"
    input_token_limit: int
    output_token_limit: int
    supported_generation_methods: tuple[str, ...] = ("generateContent", "countTokens")


class GeminiModels(msgspec.Struct, kw_only=True):
    models: list[GeminiModel]


class GeminiError(msgspec.Struct, kw_only=True):
    code: int
    message: str
    status: str  # as `INVALID_ARGUMENT`


class GeminiErrorBody(msgspec.Struct, kw_only=True):
    error: GeminiError
