"""Completions as a dialect."""

from seamlessflow.data_plane.dialects.completions.reply import CompletionReply
from seamlessflow.data_plane.dialects.completions.request import CompletionRequest, completion_request_parse
from seamlessflow.data_plane.errors import ApiError, ContextTooLong
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn

TOO_LONG = (
    "This model's maximum context length is {max_tokens} tokens, however you requested {num_tokens} tokens in your "
    "prompt. Please reduce your prompt; or completion length."
)


class CompletionsDialect:
    path = "/v1/completions"

    def parse(self, raw: bytes, *, temperature: float) -> CompletionRequest:
        return completion_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: CompletionRequest, *, created_s: int) -> CompletionReply:
        return CompletionReply(turn, request.options, created_s=created_s)

    def status(self, error: ApiError) -> int:
        return error.status

    def error(self, error: ApiError) -> bytes:
        if isinstance(error, ContextTooLong):
            return error.worded(TOO_LONG, param="prompt").body
        return error.naming("prompt").body
