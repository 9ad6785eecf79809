"""`python -m seamlessflow.data_plane.turns.rendering.helper PARENT_PID MEMORY_MB`: makes prompts, one at a time.

It reads frames from standard input: four bytes of length, then JSON. For each frame it writes one `HelperReply` to
standard output as MessagePack; if the text is long, a reply with the outcome `tokenising` comes first. It dies with its
gateway, which kills it if it takes too long. A request that exceeds the memory limit fails and ends the helper, because
freed memory may not have returned to the system.
"""

import ctypes
import functools
import os
import resource
import signal
import struct
import sys
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.guide import InvalidGuideError
from seamlessflow.data_plane.turns.rendering.chat_template import OutputTooLarge, TemplateRefused
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import (
    Prompt,
    PromptRequest,
    TailNotEnough,
    TextTooLong,
    prompt_make,
)

LENGTH = struct.Struct("<I")
NUM_MODELS_KEPT = 8
PR_SET_PDEATHSIG = 1


class HelperOutcome(StrEnum):
    DONE = "done"
    TOKENISING = "tokenising"  # another reply follows
    REFUSED = "refused"
    TEXT_TOO_LONG = "text_too_long"
    OUTPUT_TOO_LARGE = "output_too_large"
    OUT_OF_MEMORY = "out_of_memory"
    GUIDE_REFUSED = "guide_refused"
    TAIL_NOT_ENOUGH = "tail_not_enough"


class HelperReply(msgspec.Struct, frozen=True, array_like=True):
    outcome: HelperOutcome
    prompt: Prompt | None = None
    message: str = ""
    num_tokens: tuple[int, int] = (0, 0)  # of a text that is too long: at least, and the model's context


def main() -> int:
    parent_pid, memory_mb = (int(argument) for argument in sys.argv[1:])
    _die_with(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway handles a Ctrl-C in a terminal
    load = functools.lru_cache(maxsize=NUM_MODELS_KEPT)(
        functools.partial(_load, memory_bytes=memory_mb << 20)
    )
    while (frame := _read(sys.stdin.buffer)) is not None:
        reply = _reply(msgspec.json.decode(frame, type=PromptRequest), load)
        _write(reply)
        if reply.outcome is HelperOutcome.OUT_OF_MEMORY:
            return 1
    return 0


def _reply(request: PromptRequest, load: "functools._lru_cache_wrapper[ModelText]") -> HelperReply:
    try:
        prompt = prompt_make(
            load(request.model, request.family),
            request,
            on_long_text=lambda: _write(HelperReply(HelperOutcome.TOKENISING)),
        )
    except OutputTooLarge as error:
        return HelperReply(HelperOutcome.OUTPUT_TOO_LARGE, message=str(error))
    except TailNotEnough:
        return HelperReply(HelperOutcome.TAIL_NOT_ENOUGH)
    except TextTooLong as error:
        return HelperReply(HelperOutcome.TEXT_TOO_LONG, num_tokens=(error.num_tokens, error.max_tokens))
    except (TemplateRefused, ModelUnusable) as error:
        return HelperReply(HelperOutcome.REFUSED, message=str(error))
    except InvalidGuideError as error:
        return HelperReply(HelperOutcome.GUIDE_REFUSED, message=str(error))
    except RecursionError:
        return HelperReply(HelperOutcome.REFUSED, message="the messages are nested too deeply")
    except MemoryError:
        return HelperReply(HelperOutcome.OUT_OF_MEMORY)
    return HelperReply(HelperOutcome.DONE, prompt)


def _load(folder: str, family: ModelFamily, *, memory_bytes: int) -> ModelText:
    """Load the model's text files. The limit is for requests, so the memory of the files is added to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    text = model_text_load.__wrapped__(folder, family)
    data_bytes = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    soft = data_bytes + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))
    return text


def _die_with(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # the gateway died before the call above


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _write(reply: HelperReply) -> None:
    body = msgspec.msgpack.encode(reply)
    sys.stdout.buffer.write(LENGTH.pack(len(body)) + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
