"""How long the paced engine and the paced trainer sleep instead of computing.

Their processes get it as JSON in the environment, in seconds, the same on every machine. A model's folder may have a
pace of its own in `pace.json`, which then holds for all jobs with that model, so that unlike jobs share machines.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

VARIABLE = "SEAMLESSFLOW_TEST_PACE"
FILE = "pace.json"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    step_s: float = 0.02  # one decoding step of an engine, whatever the number of sequences
    prompt_token_s: float = 0.0  # in addition, for each token of a prompt, also if a moved turn is read again
    start_s: float = 0.0  # loading the model into a new process
    load_s: float = 0.0  # reading weights, beside generation
    wake_s: float = 0.0  # taking memory back
    train_token_s: float = 0.0  # forward, backward and optimizer, for each trained token
    checkpoint_s: float = 0.0  # writing a checkpoint, beside steps
    publish_s: float = 0.0  # bringing weights to where they are written from


def pace_environment(pace: Pace) -> dict[str, str]:
    return {VARIABLE: msgspec.json.encode(pace).decode()}


def pace_write(model: Path, pace: Pace) -> None:
    """Give a model its own pace."""
    (model / FILE).write_bytes(msgspec.json.encode(pace))


def pace_read(model: Path, environ: Mapping[str, str] = os.environ) -> Pace:
    """Return the model's own pace, or else that of the environment."""
    path = model / FILE
    text = path.read_bytes() if path.exists() else environ.get(VARIABLE, "{}").encode()
    return msgspec.json.decode(text, type=Pace)
