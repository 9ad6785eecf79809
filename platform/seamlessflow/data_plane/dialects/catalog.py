"""The dialects that the gateway speaks."""

from typing import Any

from seamlessflow.data_plane.dialects.chat.dialect import ChatDialect
from seamlessflow.data_plane.dialects.completions.dialect import CompletionsDialect
from seamlessflow.data_plane.dialects.dialect import Dialect
from seamlessflow.data_plane.dialects.messages.dialect import MessagesDialect
from seamlessflow.data_plane.dialects.responses.dialect import ResponsesDialect

DIALECTS: tuple[Dialect[Any], ...] = (
    ChatDialect(),
    CompletionsDialect(),
    MessagesDialect(),
    ResponsesDialect(),
)
