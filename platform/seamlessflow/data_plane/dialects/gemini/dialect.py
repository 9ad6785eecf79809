"""Google's Gemini API as dialects: one for whole answers, and one for each form of a stream."""

from dataclasses import dataclass

import msgspec

from seamlessflow.data_plane.dialects.gemini.errors import gemini_error
from seamlessflow.data_plane.dialects.gemini.reply import GeminiReply
from seamlessflow.data_plane.dialects.gemini.request import GeminiRequest, gemini_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


@dataclass(frozen=True, slots=True)
class GeminiDialect:
    is_streamed: bool = False
    is_list: bool = False  # the stream is a list of JSON objects, not of events
    path: str = "/v1beta/models"

    def parse(self, raw: bytes, *, temperature: float) -> GeminiRequest:
        return gemini_request_parse(
            raw, temperature=temperature, is_streamed=self.is_streamed, is_list=self.is_list
        )

    def reply(self, turn: Turn, request: GeminiRequest, *, created_s: int) -> GeminiReply:
        return GeminiReply(turn, request.options, is_list=self.is_list)

    def status(self, error: ApiError) -> int:
        return error.status

    def error(self, error: ApiError) -> bytes:
        return msgspec.json.encode(gemini_error(error))
