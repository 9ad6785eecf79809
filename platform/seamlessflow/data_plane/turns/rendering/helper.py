"""`python -m seamlessflow.data_plane.turns.rendering.helper PARENT_PID MEMORY_MB`: makes prompts, one at a time.

It reads frames from standard input: four bytes of length, then JSON. For each it writes one `HelperReply` to standard
output as MessagePack, preceded by one that says `tokenising` where the text is long. It dies with its gateway, which
kills it when it takes too long. Memory beyond the limit fails the request and ends the helper, because the system may
not have got back what was freed.
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

from seamlessflow.data_plane.turns.rendering.chat_template import OutputTooLarge, TemplateRefused
from seamlessflow.data_plane.turns.rendering.model_text import ModelText, ModelUnusable, model_text_load
from seamlessflow.data_plane.turns.rendering.prompt import Prompt, PromptRequest, TextTooLong, prompt_make

LENGTH = struct.Struct("<I")
NUM_MODELS_KEPT = 8
PR_SET_PDEATHSIG = 1


class HelperOutcome(StrEnum):
    DONE = "done"
    TOKENISING = "tokenising"  # not the last word
    REFUSED = "refused"
    TEXT_TOO_LONG = "text_too_long"
    OUTPUT_TOO_LARGE = "output_too_large"
    OUT_OF_MEMORY = "out_of_memory"


class HelperReply(msgspec.Struct, frozen=True, array_like=True):
    outcome: HelperOutcome
    prompt: Prompt | None = None
    message: str = ""


def main() -> int:
    parent_pid, memory_mb = (int(argument) for argument in sys.argv[1:])
    _die_with(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in a terminal is the gateway's business
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
            load(request.model),
            request,
            on_long_text=lambda: _write(HelperReply(HelperOutcome.TOKENISING)),
        )
    except OutputTooLarge as error:
        return HelperReply(HelperOutcome.OUTPUT_TOO_LARGE, message=str(error))
    except TextTooLong as error:
        return HelperReply(HelperOutcome.TEXT_TOO_LONG, message=str(error))
    except (TemplateRefused, ModelUnusable) as error:
        return HelperReply(HelperOutcome.REFUSED, message=str(error))
    except RecursionError:
        return HelperReply(HelperOutcome.REFUSED, message="the messages are nested too deeply")
    except MemoryError:
        return HelperReply(HelperOutcome.OUT_OF_MEMORY)
    return HelperReply(HelperOutcome.DONE, prompt)


def _load(folder: str, *, memory_bytes: int) -> ModelText:
    """Load the model's text files; the memory that they take comes on top of the limit, which is for requests."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    text = model_text_load.__wrapped__(folder)
    data_bytes = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    soft = data_bytes + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))
    return text


def _die_with(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # it was gone before the kernel could be asked


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _write(reply: HelperReply) -> None:
    body = msgspec.msgpack.encode(reply)
    sys.stdout.buffer.write(LENGTH.pack(len(body)) + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
