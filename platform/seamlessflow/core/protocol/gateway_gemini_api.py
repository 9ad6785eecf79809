"""The operations of the gateway's API that follow Google's Gemini API."""

from seamlessflow.core.protocol.gateway_turns_api import (
    BOUNDED_TURN,
    REFUSED_TURN,
    SESSION_KEY,
    TURN_PARAMETERS,
    UNAVAILABLE_TURN,
)
from seamlessflow.core.protocol.google_gemini import (
    GeminiAnswer,
    GeminiBody,
    GeminiErrorBody,
    GeminiModel,
    GeminiModels,
    GeminiTokens,
    GeminiTokensBody,
)
from seamlessflow.core.protocol.openapi import ApiAnswer, ApiOperation, Parameter


def _refused(description: str) -> ApiAnswer:
    return ApiAnswer(description, GeminiErrorBody)


_MODEL_NAMED = [Parameter("model", "path", "Any name: the session's job decides which policy answers.")]
_REFUSED = {
    400: _refused(REFUSED_TURN),
    401: _refused("The session's key is unknown."),
    413: _refused("The body is too large."),
    429: _refused(BOUNDED_TURN),
    503: _refused(UNAVAILABLE_TURN),
}
_LOOK = {code: _REFUSED[code] for code in (401, 503)}
_CONTENT = ApiOperation(
    method="post",
    path="/v1beta/models/{model}:generateContent",
    name="gemini_content",
    summary="Ask the policy for the next answer, as the clients of Google's Gemini API do",
    description=(
        "Every answer is recorded and may be trained on. The session's key may come as `x-goog-api-key` or as `key` in "
        "the query. Unknown fields of the body are ignored, and the header `X-SeamlessFlow-Ignored` names them."
    ),
    security=SESSION_KEY,
    parameters=[*_MODEL_NAMED, *TURN_PARAMETERS],
    body=GeminiBody,
    answers={200: ApiAnswer("The answer. It has been recorded.", GeminiAnswer), **_REFUSED},
)
_STREAM = ApiOperation(
    method="post",
    path="/v1beta/models/{model}:streamGenerateContent",
    name="gemini_stream",
    summary="The same as a stream",
    description=(
        "The answer is a list of GeminiAnswers that grows, or with `alt=sse` in the query a stream of events. The last "
        "chunk has the finish reasons and the usage. An error after the first byte comes as a GeminiErrorBody."
    ),
    security=SESSION_KEY,
    parameters=[*_MODEL_NAMED, *TURN_PARAMETERS],
    body=GeminiBody,
    answers={200: ApiAnswer("The chunks.", GeminiAnswer), **_REFUSED},
)
_TOKENS = ApiOperation(
    method="post",
    path="/v1beta/models/{model}:countTokens",
    name="gemini_tokens",
    summary="Count the tokens of a conversation, as the clients of Google's Gemini API do",
    description="Returns how many tokens the prompt of this request would have. Nothing is recorded.",
    security=SESSION_KEY,
    parameters=_MODEL_NAMED,
    body=GeminiTokensBody,
    answers={200: ApiAnswer("The number of tokens.", GeminiTokens), **_REFUSED},
)
_MODELS = ApiOperation(
    method="get",
    path="/v1beta/models",
    name="gemini_models",
    summary="List the model of the session, as the clients of Google's Gemini API do",
    description="The list has one model, named after the job.",
    security=SESSION_KEY,
    answers={200: ApiAnswer("The model.", GeminiModels), **_LOOK},
)
_MODEL = ApiOperation(
    method="get",
    path="/v1beta/models/{model}",
    name="gemini_model",
    summary="Look at the model of the session, as the clients of Google's Gemini API do",
    description="The session's model has the name of its job.",
    security=SESSION_KEY,
    parameters=[Parameter("model", "path", "The name of the session's job.")],
    answers={
        200: ApiAnswer("The model.", GeminiModel),
        404: _refused("The session's model has another name."),
        **_LOOK,
    },
)
GEMINI_OPERATIONS = (_CONTENT, _STREAM, _TOKENS, _MODELS, _MODEL)
