"""A preview in sentences: facts of the scheduler's answer in, one sentence for each phase and job out."""

from collections.abc import Sequence

from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S
from seamlessflow.core.scheduling.preview import Fate, JobOutlook, PhaseFate
from seamlessflow.core.types.tags import Role


def phase_sentence(fate: PhaseFate, *, job: str, load: int | None) -> str:
    """`load`: requests at the front, open episodes or the number of the batch in hand; None if unknown."""
    what = f"{fate.machine}: the {fate.phase.role} phase of {job}"
    if fate.fate is Fate.STAYS:
        return f"{what} goes on as it is."
    if fate.fate is Fate.FAILS:
        return f"{what} is given up, because {fate.reason}."
    return f"{what} drains, because {fate.reason}; {_consequence(fate, load)}."


def job_sentence(outlook: JobOutlook, *, job: str) -> str:
    before, after = outlook.before, outlook.after
    if not outlook.is_changed:
        return f"{job} goes on as before{f': it waits, {after.waiting}' if after.waiting else ''}."
    parts = []
    for role, verb in ((Role.ROLLOUT, "rolls out"), (Role.TRAIN, "trains"), (Role.AGENT, "runs its agents")):
        if before.of(role) != after.of(role):
            parts.append(f"{verb} on {_names(after.of(role))} instead of {_names(before.of(role))}")
    if after.waiting and after.waiting != before.waiting:
        parts.append(f"waits: {after.waiting}")
    elif before.waiting and not after.waiting:
        parts.append(f"no longer waits ({before.waiting})")
    if before.state is not after.state:
        parts.append(f"becomes {after.state or 'ended'}")
    return f"{job} {'; '.join(parts)}."


def _consequence(fate: PhaseFate, load: int | None) -> str:
    match fate.phase.role:
        case Role.ROLLOUT:
            return _requests(fate.successors, load)
        case Role.TRAIN:
            return _training(fate.successors, load)
        case Role.AGENT:
            return _episodes(fate.successors, load)


def _requests(successors: Sequence[str], load: int | None) -> str:
    if load == 0:
        return "it has no request in flight"
    requests = "its requests" if load is None else f"its {_counted(load, 'request')}"
    if successors:
        return f"{requests} {_are(load)} handed over to {_names(successors)} and go on from their own tokens"
    return f"{requests} {_are(load)} held until a machine rolls out for the job again"


def _training(successors: Sequence[str], load: int | None) -> str:
    batch = "the step in hand" if load is None else f"the step on batch {load}"
    return (
        f"it ends after {batch}, which is published; what was not begun is given again to "
        f"{_names(successors) if successors else 'whoever may train next'}"
    )


def _episodes(successors: Sequence[str], load: int | None) -> str:
    if load == 0:
        return "it has no episode under way"
    episodes = "its episodes" if load is None else f"its {_counted(load, 'episode')}"
    where = f"on {_names(successors)}" if successors else "once a machine may run agents"
    return (
        f"{episodes} get {EPISODE_GRACE_S:g} s to end; the rest are handed back without counting as attempts "
        f"and run again {where}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _are(load: int | None) -> str:
    return "is" if load == 1 else "are"


def _names(names: Sequence[str]) -> str:
    if not names:
        return "no machine"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
