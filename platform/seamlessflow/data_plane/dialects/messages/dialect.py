"""Anthropic's Messages as a dialect."""

import msgspec

from seamlessflow.data_plane.dialects.messages.errors import message_error, message_status
from seamlessflow.data_plane.dialects.messages.reply import MessagesReply
from seamlessflow.data_plane.dialects.messages.request import MessagesRequest, messages_request_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.live import Turn


class MessagesDialect:
    path = "/v1/messages"

    def parse(self, raw: bytes, *, temperature: float) -> MessagesRequest:
        return messages_request_parse(raw, temperature=temperature)

    def reply(self, turn: Turn, request: MessagesRequest, *, created_s: int) -> MessagesReply:
        return MessagesReply(turn, request.options)

    def status(self, error: ApiError) -> int:
        return message_status(error)

    def error(self, error: ApiError) -> bytes:
        return msgspec.json.encode(message_error(error))
