"""Remembers prompts of a job, so that equal ones are made once.

All sessions of a group begin with the same messages. `prompt` takes the request for a helper and a function that sends
it, and returns the prompt: a remembered one, or a new one that equal requests made meanwhile get as well. Invariants:
a prompt goes only to requests of which every byte is equal; a failure is never remembered; a request that is given up
ends the making only if no other one waits for it; the prompts take at most `max_bytes`.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.turns.rendering.prompt import AskedPrompt, Prompt

MAX_BYTES = 1 << 20  # of one job
ENTRY_BYTES = 300  # of a prompt beside its tokens and its guide

MakePrompt = Callable[[AskedPrompt], Coroutine[Any, Any, Prompt]]


@dataclass(slots=True)
class _Making:
    task: "asyncio.Task[Prompt]"
    num_waiting: int = 0


class RecentPrompts:
    """One per job."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[bytes, Prompt] = OrderedDict()
        self._making: dict[bytes, _Making] = {}

    async def prompt(self, asked: AskedPrompt, make: MakePrompt, *, is_lasting: bool) -> Prompt:
        """Return the prompt. Raises what `make` raises.

        is_lasting: the template writes the same at any time; otherwise only simultaneous requests get one prompt.
        """
        key = hashlib.blake2b(asked.body, digest_size=32).digest()
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            metrics.PROMPTS_REUSED.inc()
            return kept
        prompt = await self._shared(key, asked, make)
        if is_lasting:
            self._keep(key, prompt)
        return prompt

    def _keep(self, key: bytes, prompt: Prompt) -> None:
        if key in self._kept or (size := _num_bytes(prompt)) > self._max_bytes:
            return
        self._kept[key] = prompt
        self._num_bytes += size
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= _num_bytes(self._kept.popitem(last=False)[1])

    async def _shared(self, key: bytes, asked: AskedPrompt, make: MakePrompt) -> Prompt:
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.create_task(make(asked)))
        else:
            metrics.PROMPTS_REUSED.inc()
        making.num_waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.num_waiting -= 1
            if not making.num_waiting:
                del self._making[key]
                making.task.cancel()  # it is done, or no request waits for it


def _num_bytes(prompt: Prompt) -> int:
    return ENTRY_BYTES + len(prompt.new_ids) + (len(prompt.guide[1]) if prompt.guide else 0)
