"""The gateway's API for agents outside the platform, as `api_schema/gateway.openapi.json` publishes it.

Defines `GATEWAY` from the types that its routes decode and encode. Invariant: it has exactly the routes under `/v1` of
`core.access.routes`; a test compares them.
"""

from seamlessflow.core.protocol.anthropic_messages import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Message,
    MessageDelta,
    MessageErrorBody,
    MessageModel,
    MessageModelList,
    MessagesBody,
    MessageStart,
    MessageStop,
    Ping,
    TokenCount,
    TokensBody,
)
from seamlessflow.core.protocol.data_plane import (
    PROTOCOL_VERSION,
    RewardReport,
    SessionOpen,
    SessionOpened,
    SessionOver,
)
from seamlessflow.core.protocol.gateway_errors import ErrorBody, Problem
from seamlessflow.core.protocol.gateway_gemini_api import GEMINI_OPERATIONS
from seamlessflow.core.protocol.gateway_turns_api import (
    BOUNDED_TURN,
    REFUSED_TURN,
    SESSION_KEY,
    TURN_PARAMETERS,
    UNAVAILABLE_TURN,
)
from seamlessflow.core.protocol.openai_chat import (
    ChatBody,
    ChatCompletion,
    ChatCompletionChunk,
    ModelCard,
    ModelList,
)
from seamlessflow.core.protocol.openai_completions import Completion, CompletionBody
from seamlessflow.core.protocol.openai_responses import (
    Response,
    ResponseBody,
    ResponseError,
    ResponseEvent,
    ResponseItems,
)
from seamlessflow.core.protocol.openapi import PROBLEM, ApiAnswer, ApiOperation, Contract, Parameter

API_TOKEN = "apiToken"
SESSION = Parameter(
    "session", "path", "Identifier of the session, `ses_…`: the `session` in the answer that opened it."
)


def _refused(description: str) -> ApiAnswer:
    return ApiAnswer(description, Problem, PROBLEM)


def _chat_refused(description: str) -> ApiAnswer:
    return ApiAnswer(description, ErrorBody)


def _message_refused(description: str) -> ApiAnswer:
    return ApiAnswer(description, MessageErrorBody)


_UNAVAILABLE = _refused(
    "The gateway or its database is temporarily unavailable. Try again after `Retry-After`."
)
_GRADING = {
    400: _refused("The body is invalid: `errors` names the field."),
    401: _refused("The credential is unknown, revoked or expired."),
    403: _refused(
        "The credential may not grade this session: the token lacks the scope `sessions`, a session's own key was "
        "used without `environment.reward_by: session`, or the platform's own runner reports the outcome."
    ),
    404: _refused("No project of this credential has such a session."),
    409: _refused(
        "The session is already closed with another outcome. That outcome stays, and an event records the attempt."
    ),
    503: _UNAVAILABLE,
}
SESSION_OPEN = ApiOperation(
    method="post",
    path="/v1/sessions",
    name="session_open",
    summary="Open a session of a job",
    description=(
        "The job needs `environment: {name: external}`. The session takes a free slot in an open group with this "
        "`group` key; if there is none, a new group begins."
    ),
    security=API_TOKEN,
    parameters=[
        Parameter(
            "Idempotency-Key",
            "header",
            "1 to 200 printable ASCII characters. The same key with the same body gives the same session and key.",
        )
    ],
    body=SessionOpen,
    answers={
        201: ApiAnswer("The session is open.", SessionOpened),
        200: ApiAnswer("This `Idempotency-Key` opened the session before.", SessionOpened),
        400: _refused(
            "The body or the key is invalid, the job's environment is not `external`, or the job is over (`job_over`)."
        ),
        401: _refused("The API token is unknown, revoked or expired."),
        403: _refused("The token lacks the scope `sessions`, or its owner lacks the role `member`."),
        404: _refused("No project of this token has such a job (`job_not_found`)."),
        409: _refused(
            "The installation's secret was changed, so the session's key cannot be returned again (`key_lost`)."
        ),
        422: _refused("The `Idempotency-Key` was already used with another body (`idempotency_key_reused`)."),
        429: _refused(
            "The job admits no new group now (`admission_closed`), because as many groups are open or waiting to be "
            "trained as its staleness bound and its remaining updates allow. Try again after `Retry-After`."
        ),
        503: _UNAVAILABLE,
    },
)
SESSION_REWARD = ApiOperation(
    method="post",
    path="/v1/sessions/{session}/reward",
    name="session_reward",
    summary="Report the reward of a session",
    description="The last report before the session is closed counts. Each report restarts the session's time to live.",
    security=API_TOKEN,
    parameters=[SESSION],
    body=RewardReport,
    answers={
        204: ApiAnswer("The reward is stored."),
        200: ApiAnswer("The session has failed, so the reward is not stored.", SessionOver),
        **_GRADING,
        422: _refused("`branch` is not accepted: a reward is for the whole session."),
    },
)
SESSION_CLOSE = ApiOperation(
    method="post",
    path="/v1/sessions/{session}/close",
    name="session_close",
    summary="Close a session",
    description=(
        "The reward becomes the outcome of the session. A session without a reward counts as failed, and its slot "
        "in the group becomes free again. Closing a session twice changes nothing."
    ),
    security=API_TOKEN,
    parameters=[SESSION],
    answers={204: ApiAnswer("The session is closed."), **{k: v for k, v in _GRADING.items() if k != 409}},
)
CHAT = ApiOperation(
    method="post",
    path="/v1/chat/completions",
    name="chat_completion",
    summary="Ask the policy for the next answer",
    description=(
        "Every answer is recorded and may be trained on. With `stream` the answer is a stream of events, each a "
        "ChatCompletionChunk, up to `data: [DONE]`. An error after the first byte comes as an event with an "
        "ErrorBody. Unknown fields of the body are ignored, and the header `X-SeamlessFlow-Ignored` names them."
    ),
    security=SESSION_KEY,
    parameters=TURN_PARAMETERS,
    body=ChatBody,
    answers={
        200: ApiAnswer("The answer. It has been recorded.", ChatCompletion),
        400: _chat_refused(REFUSED_TURN),
        401: _chat_refused("The session's key is unknown (`invalid_api_key`)."),
        413: _chat_refused("The body is too large."),
        429: _chat_refused(BOUNDED_TURN),
        503: _chat_refused(UNAVAILABLE_TURN),
    },
)
COMPLETION = ApiOperation(
    method="post",
    path="/v1/completions",
    name="completion",
    summary="Let the policy continue a text or token ids",
    description=(
        "The prompt is taken as it is, without the chat template, and recorded as the beginning of a tree of its own. "
        "With `stream` the answer is a stream of events, each a Completion, up to `data: [DONE]`. Unknown fields of "
        "the body are ignored, and the header `X-SeamlessFlow-Ignored` names them."
    ),
    security=SESSION_KEY,
    parameters=TURN_PARAMETERS,
    body=CompletionBody,
    answers={
        200: ApiAnswer("The answer. It has been recorded.", Completion),
        400: _chat_refused(REFUSED_TURN),
        401: _chat_refused("The session's key is unknown (`invalid_api_key`)."),
        413: _chat_refused("The body is too large."),
        429: _chat_refused(BOUNDED_TURN),
        503: _chat_refused(UNAVAILABLE_TURN),
    },
)
RESPONSE = ApiOperation(
    method="post",
    path="/v1/responses",
    name="response",
    summary="Ask the policy for the next response",
    description=(
        "Every answer is recorded and may be trained on. `input` has the whole conversation, or names what the session "
        "keeps: a previous response, or items of one. With `stream` the answer is a stream of named events, each a "
        "ResponseEvent, up to "
        "`response.completed` or `response.incomplete`. An error after the first byte comes as a ResponseError. "
        "Unknown fields of the body are ignored, and the header `X-SeamlessFlow-Ignored` names them."
    ),
    security=SESSION_KEY,
    parameters=TURN_PARAMETERS,
    body=ResponseBody,
    answers={
        200: ApiAnswer("The answer. It has been recorded.", Response),
        400: _chat_refused(REFUSED_TURN),
        401: _chat_refused("The session's key is unknown (`invalid_api_key`)."),
        404: _chat_refused("The session keeps no such response or item (`previous_response_not_found`)."),
        413: _chat_refused("The body is too large."),
        429: _chat_refused(BOUNDED_TURN),
        503: _chat_refused(UNAVAILABLE_TURN),
    },
)
_KEPT = [Parameter("response", "path", "Identifier of a response of this session, `resp_…`.")]
_KEPT_REFUSED = {
    401: _chat_refused("The session's key is unknown (`invalid_api_key`)."),
    404: _chat_refused("The session keeps no such response."),
    503: _chat_refused("The gateway or its database is temporarily unavailable."),
}
RESPONSE_GET = ApiOperation(
    method="get",
    path="/v1/responses/{response}",
    name="response_get",
    summary="Look at a response of the session again",
    description="The tools of its request are not kept, and left out.",
    security=SESSION_KEY,
    parameters=_KEPT,
    answers={200: ApiAnswer("The response.", Response), **_KEPT_REFUSED},
)
RESPONSE_ITEMS = ApiOperation(
    method="get",
    path="/v1/responses/{response}/input_items",
    name="response_items",
    summary="List the conversation before a response",
    description="All items come at once, the newest first.",
    security=SESSION_KEY,
    parameters=_KEPT,
    answers={200: ApiAnswer("The items.", ResponseItems), **_KEPT_REFUSED},
)
MESSAGES = ApiOperation(
    method="post",
    path="/v1/messages",
    name="message",
    summary="Ask the policy for the next answer, as Anthropic's clients do",
    description=(
        "Every answer is recorded and may be trained on. The session's key may come as `x-api-key`. With `stream` the "
        "answer is a stream of named events: MessageStart, then BlockStart, BlockDelta and BlockStop for each block, "
        "then MessageDelta and MessageStop, with a Ping while nothing happens. An error after the first byte comes as "
        "an event with a MessageErrorBody. Unknown fields of the body are ignored, and the header "
        "`X-SeamlessFlow-Ignored` names them. A line of the system prompt such as `x-anthropic-billing-header: …` is "
        "removed, because it changes with every request."
    ),
    security=SESSION_KEY,
    parameters=TURN_PARAMETERS,
    body=MessagesBody,
    answers={
        200: ApiAnswer("The answer. It has been recorded.", Message),
        400: _message_refused(REFUSED_TURN),
        401: _message_refused("The session's key is unknown (`invalid_api_key`)."),
        413: _message_refused("The body is too large."),
        429: _message_refused(BOUNDED_TURN),
        529: _message_refused(UNAVAILABLE_TURN),
    },
)
COUNT_TOKENS = ApiOperation(
    method="post",
    path="/v1/messages/count_tokens",
    name="message_tokens",
    summary="Count the tokens of a conversation",
    description="Returns how many tokens the prompt of this request would have. Nothing is recorded.",
    security=SESSION_KEY,
    body=TokensBody,
    answers={
        200: ApiAnswer("The number of tokens.", TokenCount),
        400: _message_refused("The body is invalid, or the messages cannot be rendered."),
        401: _message_refused("The session's key is unknown (`invalid_api_key`)."),
        413: _message_refused("The body is too large."),
        529: _message_refused("The gateway or its database is temporarily unavailable."),
    },
)
_MODEL_REFUSED = {
    401: _chat_refused("The session's key is unknown (`invalid_api_key`)."),
    503: _chat_refused("The gateway or its database is temporarily unavailable."),
}
MODELS = ApiOperation(
    method="get",
    path="/v1/models",
    name="model_list",
    summary="List the model of the session",
    description=(
        "The list has one model, named after the job. Anthropic's clients, known by the header `anthropic-version` "
        "or by `x-api-key` without `Authorization`, get a MessageModelList and their API's errors. The request "
        "restarts the session's time to live."
    ),
    security=SESSION_KEY,
    answers={200: ApiAnswer("The model.", ModelList), **_MODEL_REFUSED},
)
MODEL = ApiOperation(
    method="get",
    path="/v1/models/{model}",
    name="model_get",
    summary="Look at the model of the session",
    description="Anthropic's clients get a MessageModel and their API's errors.",
    security=SESSION_KEY,
    parameters=[Parameter("model", "path", "The name of the session's job.")],
    answers={
        200: ApiAnswer("The model.", ModelCard),
        404: _chat_refused("The session's model has another name (`model_not_found`)."),
        **_MODEL_REFUSED,
    },
)
GATEWAY = Contract(
    title="SeamlessFlow gateway",
    version=str(PROTOCOL_VERSION),
    description="For agents outside the platform: open sessions of a job, ask its policy, report rewards. "
    "`docs/external-agents.md` is the guide.",
    operations=[
        SESSION_OPEN,
        SESSION_REWARD,
        SESSION_CLOSE,
        CHAT,
        COMPLETION,
        RESPONSE,
        RESPONSE_GET,
        RESPONSE_ITEMS,
        MESSAGES,
        COUNT_TOKENS,
        *GEMINI_OPERATIONS,
        MODELS,
        MODEL,
    ],
    schemes={
        API_TOKEN: "An API token of the job's project with the scope `sessions`.",
        SESSION_KEY: "The session's key: the `api_key` in the answer that opened it.",
    },
    types=[
        ChatCompletionChunk,
        MessageModel,
        MessageModelList,
        MessageStart,
        BlockStart,
        BlockDelta,
        BlockStop,
        MessageDelta,
        MessageStop,
        Ping,
        ResponseEvent,
        ResponseError,
    ],
)
