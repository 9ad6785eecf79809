"""Faults of the files and values that a job names, kept apart from faults of the machine on which a child runs.

Takes a model folder, or an exception of a library that loads one. An `InputFault` would come on every machine, so the
job has to change; a child that meets one before it serves leaves with `leave_for_input`. Invariant: what may be the
machine's (a file that cannot be read, memory, a device, a missing package) is never taken for the input's.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from safetensors import SafetensorError

from seamlessflow.core.protocol.child import EXIT_INPUT_FAULT, INPUT_FAULT_MARK
from seamlessflow.runtime.model_folders import model_folder_problems

# What libraries raise about a config or weights that they do not understand.
_OF_INPUT = (
    ArithmeticError, AttributeError, LookupError, OSError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
_OF_CONFIGS = "huggingface_hub.errors"  # where the errors of configs are; importing it takes half a second
_MISMATCH = "mismatch"  # transformers says so of shapes, in a RuntimeError


class InputFault(RuntimeError):
    """The job's model or settings cannot be used, on whichever machine."""


def model_check(folder: Path, *, has_weights: bool = True) -> None:
    """Raise InputFault if the files of a model folder say that it cannot be loaded, or OSError."""
    problems = list(model_folder_problems(folder, has_weights=has_weights))
    if problems:
        raise InputFault(f"{folder}: {'; '.join(problems)}")


@contextmanager
def input_faults(folder: Path) -> Iterator[None]:
    """A context in which a library loads a model: a complaint about the model becomes an InputFault."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputFault) or not is_of_input(error):
            raise
        raise InputFault(f"{folder}: {_described(error)}") from error


def is_of_input(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError | ImportError) or (
            isinstance(cause, OSError)
            and cause.errno is not None  # transformers gives its own complaints no number
        ):
            return False
        cause = cause.__cause__
    is_mismatch = isinstance(error, RuntimeError) and _MISMATCH in str(error)
    return is_mismatch or type(error).__module__ == _OF_CONFIGS or isinstance(error, _OF_INPUT)


def leave_for_input(reason: str) -> NoReturn:
    """Exit without waiting for threads; the supervisor takes the last line as the reason."""
    print(f"{INPUT_FAULT_MARK}{_line(reason)}", file=sys.stderr, flush=True)
    os._exit(EXIT_INPUT_FAULT)


def _described(error: Exception) -> str:
    """Return what an exception says in one line, with its kind if the words alone would not explain it."""
    text = _line(str(error))
    return (
        text
        if isinstance(error, OSError | SafetensorError | ValueError)
        else f"{type(error).__name__}: {text}"
    )


def _line(text: str) -> str:
    return " ".join(text.split())
