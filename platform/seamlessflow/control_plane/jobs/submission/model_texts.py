"""Tries the tokenizer and the chat template of a submitted model as a gateway would use them.

The gateway's own code does it, in a process of its own: the planes do not import one another, and a template is a
program that may never end. Equal files are tried once per process. Invariant: a model is refused only if no turn of it
could be served.
"""

import hashlib
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import msgspec

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.core.families import ModelFamily
from seamlessflow.core.protocol.model_folders import FOLDER_CHECK, FolderReport

LIMIT_S = 120  # of wall time; the program itself limits its processor time
NUM_KEPT = 256
_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "config.json",
    "chat_template.jinja",
)
_kept: OrderedDict[tuple[bytes, ModelFamily], FolderReport] = OrderedDict()


def model_text_check(folder: Path, family: ModelFamily) -> FolderReport:
    """Return how the model's answers are read, and what does not work.

    Raises ApplicationError naming `model.source` if no turn could be served.
    """
    key = _digest(folder), family
    report = _kept.get(key)
    if report is None:
        report = _kept[key] = _tried(folder, family)
        while len(_kept) > NUM_KEPT:
            _kept.popitem(last=False)
    if report.refusal is not None:
        raise field_error("model.source", f"no turn of {folder.name} could be served: {report.refusal}")
    return report


def _digest(folder: Path) -> bytes:
    digest = hashlib.sha256()
    files = [folder / name for name in _FILES]
    for file in (*files, *sorted((folder / "additional_chat_templates").glob("*.jinja"))):
        if file.is_file():
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode("utf-8", "surrogateescape") + content)
    return digest.digest()


def _tried(folder: Path, family: ModelFamily) -> FolderReport:
    command = [sys.executable, "-m", FOLDER_CHECK, str(folder), family.value]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return FolderReport(refusal=f"its chat template and its tokenizer take longer than {LIMIT_S} s")
    if done.returncode < 0:
        return FolderReport(refusal="its chat template or its tokenizer takes too much time or memory")
    try:
        return msgspec.json.decode(done.stdout, type=FolderReport)
    except msgspec.DecodeError as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"{FOLDER_CHECK} ended with {done.returncode}: {last}") from error
