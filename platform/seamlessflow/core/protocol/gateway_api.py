"""The gateway's API for agents outside the platform, as `api_schema/gateway.openapi.json` publishes it.

Defines `GATEWAY` from the types that its routes decode and encode. Invariant: it has exactly the routes under `/v1` of
`core.access.routes`; a test compares them.
"""

from seamlessflow.core.protocol.data_plane import (
    PROTOCOL_VERSION,
    RewardReport,
    SessionOpen,
    SessionOpened,
    SessionOver,
)
from seamlessflow.core.protocol.gateway_errors import ErrorBody, Problem
from seamlessflow.core.protocol.openai_chat import ChatBody, ChatCompletion, ChatCompletionChunk, ModelList
from seamlessflow.core.protocol.openapi import PROBLEM, Answer, Contract, Operation, Parameter

API_TOKEN, SESSION_KEY = "apiToken", "sessionKey"
SESSION = Parameter("session", "path", "The `session` of the answer that opened it, `ses_…`.")


def _refused(description: str) -> Answer:
    return Answer(description, Problem, PROBLEM)


def _chat_refused(description: str) -> Answer:
    return Answer(description, ErrorBody)


_UNAVAILABLE = _refused(
    "The gateway or its database is unavailable for a moment: try again after `Retry-After`."
)
_GRADING = {
    400: _refused("The body has a fault: `errors` names the field."),
    401: _refused("The credential is unknown, revoked or expired."),
    403: _refused(
        "The credential may not grade this session: the token lacks the scope `sessions`, a session's own key was "
        "used without `environment.reward_by: session`, or the platform's own runner reports the outcome."
    ),
    404: _refused("The projects of the credential have no such session."),
    409: _refused(
        "The session is closed with another outcome. The outcome stays, and an event records the attempt."
    ),
    503: _UNAVAILABLE,
}
SESSION_OPEN = Operation(
    method="post",
    path="/v1/sessions",
    name="session_open",
    summary="Open a session of a job",
    description="The job needs `environment: {name: external}`. The session gets a place in the group of this key; "
    "without an open group of this key with a free place, a new group begins.",
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
        201: Answer("The session is open.", SessionOpened),
        200: Answer("This `Idempotency-Key` opened the session before.", SessionOpened),
        400: _refused(
            "The body or the key has a fault, the job's environment is not `external`, or the job is over (`job_over`)."
        ),
        401: _refused("The API token is unknown, revoked or expired."),
        403: _refused("The token lacks the scope `sessions`, or its owner the role `member`."),
        404: _refused("The projects of the token have no such job (`job_not_found`)."),
        409: _refused(
            "The installation's secret was changed, so the key cannot be given again (`key_lost`)."
        ),
        422: _refused("The `Idempotency-Key` was used for another body (`idempotency_key_reused`)."),
        429: _refused(
            "The job admits no new group now (`admission_closed`): as many are open or wait to be trained as its "
            "staleness bound and its remaining updates allow. Try again after `Retry-After`."
        ),
        503: _UNAVAILABLE,
    },
)
SESSION_REWARD = Operation(
    method="post",
    path="/v1/sessions/{session}/reward",
    name="session_reward",
    summary="Report the reward of a session",
    description="Until the session is closed, the last report counts. A report restarts the session's time to live.",
    security=API_TOKEN,
    parameters=[SESSION],
    body=RewardReport,
    answers={
        204: Answer("The reward is stored, or was stored before."),
        200: Answer("The session has failed: the reward was not stored.", SessionOver),
        **_GRADING,
        422: _refused("`branch` is not accepted: a reward is that of the whole session."),
    },
)
SESSION_CLOSE = Operation(
    method="post",
    path="/v1/sessions/{session}/close",
    name="session_close",
    summary="Close a session",
    description="The reward becomes the outcome of the session. A session without a reward has failed, and its place "
    "in the group is free again. Closing a session twice changes nothing.",
    security=API_TOKEN,
    parameters=[SESSION],
    answers={204: Answer("The session is closed."), **{k: v for k, v in _GRADING.items() if k != 409}},
)
CHAT = Operation(
    method="post",
    path="/v1/chat/completions",
    name="chat_completion",
    summary="Ask the policy for the next answer",
    description="Every answer is recorded and may be trained. With `stream` the answer is a stream of events, each a "
    "ChatCompletionChunk, until `data: [DONE]`; an error after the first byte is an event with an ErrorBody.",
    security=SESSION_KEY,
    parameters=[
        Parameter(
            "Idempotency-Key",
            "header",
            "Requests with the same key and body are one turn: a repeat waits for the one in flight and gets its "
            "answer.",
        ),
        Parameter(
            "X-Stainless-Retry-Count",
            "header",
            "Set by OpenAI's SDKs. Above 0 the request continues the turn that it repeats.",
        ),
    ],
    body=ChatBody,
    answers={
        200: Answer("The answer, after it was recorded.", ChatCompletion),
        400: _chat_refused(
            "The body has a fault, a parameter is not supported (`unsupported_parameter`), the messages are too long "
            "(`context_length_exceeded`), the session is closed (`session_closed`) or the job is over (`job_over`)."
        ),
        401: _chat_refused("The key of the session is unknown (`invalid_api_key`)."),
        413: _chat_refused("The body is too large."),
        503: _chat_refused(
            "Send the request again, after `Retry-After` if there is one: the gateway or its database is unavailable "
            "for a moment, too many turns wait for an engine (`overloaded`), or the answer could not be recorded "
            "(`not_recorded`)."
        ),
    },
)
MODELS = Operation(
    method="get",
    path="/v1/models",
    name="model_list",
    summary="List the model of the session",
    description="The list has one model, named after the job. The request restarts the session's time to live.",
    security=SESSION_KEY,
    answers={200: Answer("The model.", ModelList), 401: _refused("The key is unknown."), 503: _UNAVAILABLE},
)
GATEWAY = Contract(
    title="SeamlessFlow gateway",
    version=str(PROTOCOL_VERSION),
    description="For agents outside the platform: open sessions of a job, ask its policy, report rewards. "
    "`docs/external-agents.md` is the guide.",
    operations=[SESSION_OPEN, SESSION_REWARD, SESSION_CLOSE, CHAT, MODELS],
    schemes={
        API_TOKEN: "An API token of the job's project with the scope `sessions`.",
        SESSION_KEY: "The `api_key` of the answer that opened the session.",
    },
    types=[ChatCompletionChunk],
)
