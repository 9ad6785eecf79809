"""States of a machine in its ledger. Every interval has one state and, if the machine is idle, one cause."""

from enum import StrEnum


class LedgerState(StrEnum):
    SERVING = "serving"  # requests in flight at an engine
    TRAINING = "training"
    RUNNING_AGENTS = "running_agents"
    STARTING = "starting"
    SWITCHING = "switching"  # between two roles
    SYNCING = "syncing"  # loading or publishing weights
    DRAINING = "draining"
    IDLE = "idle"
    UNKNOWN = "unknown"  # no report covers this time
    DOWN = "down"


class IdleCause(StrEnum):
    """Why a machine had nothing to do."""

    NO_JOB = "no_job"
    NO_REQUESTS = "no_requests"  # the engine is up, but has no requests
    NO_BATCH = "no_batch"  # the trainer is up, but no batch is ready
    NO_GROUPS = "no_groups"  # the runner is up, but admission is closed or the tasks are exhausted
    AWAITING_ORDERS = "awaiting_orders"  # the phase is over, and the scheduler has not answered yet
    AWAITING_WEIGHTS = "awaiting_weights"
    AWAITING_GANG = "awaiting_gang"  # it trains with other machines, which are not ready yet or work alone
    CORDONED = "cordoned"
