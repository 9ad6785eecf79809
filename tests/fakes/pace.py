"""How long the paced engine and the paced trainer sleep instead of computing.

Their processes get it as JSON in the environment, in seconds, the same on every machine.
"""

import os
from collections.abc import Mapping

import msgspec

VARIABLE = "SEAMLESSFLOW_TEST_PACE"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    step_s: float = 0.02  # one decoding step of an engine, whatever the number of sequences
    prompt_token_s: float = 0.0  # in addition, for each token of a prompt
    load_s: float = 0.0  # reading weights, beside generation
    wake_s: float = 0.0  # taking memory back
    train_token_s: float = 0.0  # forward, backward and optimizer, for each trained token
    publish_s: float = 0.0  # bringing weights to where they are written from


def pace_environment(pace: Pace) -> dict[str, str]:
    return {VARIABLE: msgspec.json.encode(pace).decode()}


def pace_read(environ: Mapping[str, str] = os.environ) -> Pace:
    return msgspec.json.decode(environ.get(VARIABLE, "{}"), type=Pace)
