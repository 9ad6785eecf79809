"""The common answers of the operations that ask for a turn, whichever API they follow."""

from seamlessflow.core.protocol.openapi import Parameter

SESSION_KEY = "sessionKey"
TURN_PARAMETERS = [
    Parameter(
        "Idempotency-Key",
        "header",
        "Requests with the same key and body are one turn: a repeated request waits for the one in progress and "
        "gets the same answer.",
    ),
    Parameter(
        "X-Stainless-Retry-Count",
        "header",
        "Set by OpenAI's SDKs. If it is above 0, the request continues the turn that it repeats.",
    ),
]
REFUSED_TURN = (
    "The body is invalid, a parameter is not supported (`unsupported_parameter`), the messages are too long "
    "(`context_length_exceeded`), the session is closed (`session_closed`) or the job is over (`job_over`)."
)
BOUNDED_TURN = (
    "The session is at a bound, which the message names with its value. With `x-should-retry: false`, the episode "
    "should end (`max_turns_reached`, `session_tokens_reached`) or ask for fewer answers (`too_many_answers`). Else "
    "too many answers are under way at the same time: send the request again after `Retry-After`."
)
UNAVAILABLE_TURN = (
    "The gateway or its database is temporarily unavailable, too many turns wait for an engine (`overloaded`), no "
    "engine took the request in time (`no_engine`; the message says why), or the answer could not be recorded "
    "(`not_recorded`). Send the request again, after `Retry-After` if it is given."
)
