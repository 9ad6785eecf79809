"""Responses as a dialect."""

from seamlessflow.data_plane.dialects.responses.reply import ResponsesReply
from seamlessflow.data_plane.dialects.responses.request import ResponseRequest, response_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


class ResponsesDialect:
    path = "/v1/responses"

    def parse(self, raw: bytes, *, temperature: float) -> ResponseRequest:
        return response_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: ResponseRequest, *, created_s: int) -> ResponsesReply:
        return ResponsesReply(turn, request.options, created_s=created_s)

    def error(self, error: ApiError) -> bytes:
        return error.naming("input").body
