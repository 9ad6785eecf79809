"""One word for how a machine is, for REST, pages, the command line and the admin site alike."""

from enum import StrEnum


class MachineHealth(StrEnum):
    NOT_SEEN = "not seen"  # registered, but its supervisor has never sent a heartbeat
    DOWN = "down"
    DRAINING = "draining"
    CORDONED = "cordoned"
    QUARANTINED = "quarantined"
    HEALTHY = "healthy"


def machine_health(
    *, is_seen: bool, is_up: bool, is_draining: bool, is_cordoned: bool, is_quarantined: bool
) -> MachineHealth:
    """Return the first word that applies. An operator's wish comes before a quarantine, because it outlasts it.

    >>> machine_health(is_seen=True, is_up=True, is_draining=False, is_cordoned=True, is_quarantined=True).value
    'cordoned'
    """
    if not is_up:
        return MachineHealth.DOWN if is_seen else MachineHealth.NOT_SEEN
    if is_draining:
        return MachineHealth.DRAINING
    if is_cordoned:
        return MachineHealth.CORDONED
    return MachineHealth.QUARANTINED if is_quarantined else MachineHealth.HEALTHY
