"""Describes a preview in sentences, one for each phase and job.

The sentences do not depend on what is running at this moment, so they stay true until a person
edits something.
"""

from collections.abc import Sequence

from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S
from seamlessflow.core.scheduling.explain.preview import Impact, JobImpact, PhaseImpact
from seamlessflow.core.types.tags import Role


def phase_sentence(impact: PhaseImpact, *, job: str) -> str:
    if impact.is_turn:
        return f"{impact.machine}: its turns to train {job} end, because {impact.reason}; {_turns(impact.successors)}."
    what = f"{impact.machine}: the {impact.role} phase of {job}"
    if impact.impact is Impact.STAYS:
        return f"{what} continues unchanged."
    if impact.impact is Impact.FAILS:
        return f"{what} is given up, because {impact.reason}."
    return f"{what} drains, because {impact.reason}; {_consequence(impact)}."


def job_sentence(impact: JobImpact, *, job: str) -> str:
    before, after = impact.before, impact.after
    if not impact.is_changed:
        return f"{job} continues as before{f'; it still waits: {after.waiting}' if after.waiting else ''}."
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


def _consequence(impact: PhaseImpact) -> str:
    match impact.role:
        case Role.ROLLOUT:
            return _requests(impact.successors)
        case Role.TRAIN:
            return _turns(impact.successors)
        case Role.AGENT:
            return _episodes(impact.successors)


def _requests(successors: Sequence[str]) -> str:
    if successors:
        return f"its requests are handed over to {_names(successors)} and continue from their own tokens"
    return "its requests are held until a machine rolls out for the job again"


def _turns(successors: Sequence[str]) -> str:
    return (
        "a step in progress finishes and is published; batches not yet started go to "
        f"{_names(successors) if successors else 'the next machine that may train'}"
    )


def _episodes(successors: Sequence[str]) -> str:
    where = f"on {_names(successors)}" if successors else "as soon as a machine may run agents"
    return (
        f"its episodes get {EPISODE_GRACE_S:g} s to end; the rest are requeued without counting as attempts "
        f"and run again {where}"
    )


def _names(names: Sequence[str]) -> str:
    if not names:
        return "no machine"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
