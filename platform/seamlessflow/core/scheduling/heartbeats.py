"""How often machines send heartbeats, and after how long a silence one counts as lost.

Takes the number of machines; returns seconds. Invariants: the fleet sends at most MAX_BEATS_PER_S on average, whatever
its size; a machine may lose four heartbeats in a row before it counts as lost. A machine with news sends it at once,
and orders are announced by doorbells, so a longer interval delays neither.
"""

SHORTEST_INTERVAL_S = 1.0
MAX_BEATS_PER_S = (
    200.0  # of all machines together: less than half of one core for the web process and PostgreSQL
)
LIMIT_INTERVALS = 5
HEARTBEAT_LIMIT_S = 15.0  # the shortest: smaller fleets send more often than a third of it


def heartbeat_interval_s(num_machines: int) -> float:
    """Return the time from one heartbeat of a machine to the next."""
    return max(SHORTEST_INTERVAL_S, num_machines / MAX_BEATS_PER_S)


def unheard_limit_s(interval_s: float) -> float:
    """Return for how long a machine that was given this interval may be silent."""
    return max(HEARTBEAT_LIMIT_S, LIMIT_INTERVALS * interval_s)
