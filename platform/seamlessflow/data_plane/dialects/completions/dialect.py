"""Completions as a dialect."""

from seamlessflow.data_plane.dialects.completions.reply import CompletionReply
from seamlessflow.data_plane.dialects.completions.request import CompletionRequest, completion_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


class CompletionsDialect:
    path = "/v1/completions"

    def parse(self, raw: bytes, *, temperature: float) -> CompletionRequest:
        return completion_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: CompletionRequest, *, created_s: int) -> CompletionReply:
        return CompletionReply(turn, request.options, created_s=created_s)

    def error(self, error: ApiError) -> bytes:
        return error.naming("prompt").body
