"""Responses as a dialect."""

from seamlessflow.data_plane.dialects.responses.reply import ResponsesReply
from seamlessflow.data_plane.dialects.responses.request import ResponseRequest, response_request_parse
from seamlessflow.data_plane.errors import ApiError, ContextTooLong
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn

TOO_LONG = (
    "Your input exceeds the context window of this model. This model's maximum context length is {max_tokens} tokens, "
    "but the input has {num_tokens} tokens. Please adjust your input and try again."
)


class ResponsesDialect:
    path = "/v1/responses"

    def parse(self, raw: bytes, *, temperature: float) -> ResponseRequest:
        return response_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: ResponseRequest, *, created_s: int) -> ResponsesReply:
        return ResponsesReply(turn, request.options, created_s=created_s)

    def status(self, error: ApiError) -> int:
        return error.status

    def error(self, error: ApiError) -> bytes:
        if isinstance(error, ContextTooLong):
            return error.worded(TOO_LONG, param="input").body
        return error.naming("input").body
