"""States of a machine in the idle ledger. Every interval has one state and, if idle, one cause."""

from enum import StrEnum


class LedgerState(StrEnum):
    SERVING = "serving"  # requests in flight at the front
    TRAINING = "training"
    RUNNING_AGENTS = "running_agents"
    STARTING = "starting"
    SWITCHING = "switching"  # between two roles
    SYNCING = "syncing"  # taking or publishing weights
    DRAINING = "draining"
    IDLE = "idle"
    UNKNOWN = "unknown"  # no report covers the time
    DOWN = "down"


class IdleCause(StrEnum):
    """Why a machine had nothing to do."""

    NO_JOB = "no_job"
    NO_REQUESTS = "no_requests"  # engine up, nothing asked
    NO_BATCH = "no_batch"  # trainer up, no batch ready
    NO_GROUPS = "no_groups"  # runner up, admission closed or tasks exhausted
    AWAITING_ORDERS = "awaiting_orders"  # phase over, scheduler has not answered
    AWAITING_WEIGHTS = "awaiting_weights"
    AWAITING_GANG = "awaiting_gang"  # trains with other machines, which are not ready yet or work alone
    CORDONED = "cordoned"
