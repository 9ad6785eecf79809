"""Takes the text of an answer as it is: an answer to a raw prompt is not searched for reasoning or tool calls."""

from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta


class PlainParser:
    """Returns every text as content."""

    def push(self, text: str) -> list[Delta]:
        return [Delta(content=text)]

    def finish(self) -> list[Delta]:
        return []
