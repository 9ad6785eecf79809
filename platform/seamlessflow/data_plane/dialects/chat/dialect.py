"""Chat Completions as a dialect."""

from seamlessflow.data_plane.dialects.chat.reply import ChatReply
from seamlessflow.data_plane.dialects.chat.request import ChatRequest, chat_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


class ChatDialect:
    path = "/v1/chat/completions"

    def parse(self, raw: bytes, *, temperature: float) -> ChatRequest:
        return chat_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: ChatRequest, *, created_s: int) -> ChatReply:
        return ChatReply(turn, request.options, created_s=created_s)

    def status(self, error: ApiError) -> int:
        return error.status

    def error(self, error: ApiError) -> bytes:
        return error.body
