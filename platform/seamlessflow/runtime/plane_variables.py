"""The variables that control plane and gateways read alike, and bounds that are the same for both.

Invariant: what both planes read has one meaning, one default and one set of accepted values.
"""

from seamlessflow.core.protocol.exposure import MODE_VARIABLE, Mode
from seamlessflow.runtime.artifacts.opening import ACCEPTED as ACCEPTED_ROOTS
from seamlessflow.runtime.artifacts.opening import InvalidRoot, root_url
from seamlessflow.runtime.variables import Variable, one_of, secret, whole_number
from seamlessflow.runtime.watchdog import DEFAULT_LIMIT_S, LIMIT_VARIABLE

MIN_SECRET_LENGTH = 32


def _root(value: str) -> str:
    try:
        return root_url(value)
    except InvalidRoot as error:
        raise ValueError from error


MODE = one_of(
    MODE_VARIABLE,
    "`local` listens on loopback only; `private` serves plain HTTP to a private network (`seamlessflow up --listen` "
    "sets it); `production` demands TLS and a strong secret",
    choices=tuple(Mode),
    default=Mode.LOCAL,
)
SECRET_KEY = secret(
    "SEAMLESSFLOW_SECRET_KEY",
    "signs credentials and sessions; the same in every process, at least 50 characters unless the mode is `local`; "
    "never give it to a machine",
    min_length=MIN_SECRET_LENGTH,
)
ARTIFACT_ROOT = Variable(
    "ARTIFACT_ROOT",
    "the folder that all planes and machines see under the same path, or a bucket, for weights, checkpoints and "
    "uploads",
    ACCEPTED_ROOTS,
    _root,
)
WATCHDOG_S = whole_number(
    LIMIT_VARIABLE,
    "a process whose event loop is blocked for this many seconds exits with status 70 and logs what its threads were "
    "doing; `0` turns this off. The scheduler, which waits for the database in its loop, gets four times as long",
    default=DEFAULT_LIMIT_S,
)
MAX_CONNECTIONS = whole_number(
    "SEAMLESSFLOW_MAX_CONNECTIONS",
    "connections of one process; beyond that the answer is 503. Each may take about 0.3 MB. Once half of them are "
    "taken, a client (a session's key, a token, a browser) that has more than an equal part of that half gets 429 for "
    "one more",
    default=4096,
    minimum=1,
)
