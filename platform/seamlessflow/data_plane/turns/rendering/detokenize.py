"""Turns tokens into text, piece by piece, and never cuts a character in two.

`Detokenizer` takes packed ids in chunks of any size and returns text. All pieces, with that of `flush`, make up the
text of all ids.
"""

from collections.abc import Sequence

from seamlessflow.data_plane.turns.rendering.model_text import ModelText

_REPLACEMENT = "\ufffd"


class Detokenizer:
    """Decodes a sliding window: from the last chunk boundary that was safe to the newest token."""

    def __init__(self, text: ModelText) -> None:
        self._text = text
        self._window: list[int] = []
        self._num_context = 0  # ids at the window's start whose text has left already

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids complete, possibly none yet."""
        hidden = self._text.hidden_ids
        self._window += [i for i in token_ids if i not in hidden]
        new = self._new_text()
        if new.endswith(_REPLACEMENT):
            return ""  # bytes of a character are still missing
        self._window = self._window[self._num_context :]
        self._num_context = len(self._window)
        return new

    def flush(self) -> str:
        """Return what is left; broken characters become replacement characters, as in a whole decode."""
        new = self._new_text()
        self._num_context = len(self._window)
        return new

    def _new_text(self) -> str:
        if len(self._window) == self._num_context:
            return ""
        known = self._text.decode(self._window[: self._num_context])
        return self._text.decode(self._window)[len(known) :]
