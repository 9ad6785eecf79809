"""Describes the queue in sentences: what a job lacks, until when a machine is held, and what would help.

`name_of` names a job as the reader may know it, in the form 'the job "calculator"' or "a job of another project".
"""

from collections.abc import Callable, Sequence

from seamlessflow.core.scheduling.explain.queue import Holder, Lack, QueueEntry, Shortage, Until
from seamlessflow.core.scheduling.explain.unblocks import Unblock, UnblockKind
from seamlessflow.core.types.tags import ROLE_TAGS, Role

_NEEDS = {Role.ROLLOUT: "roll out", Role.TRAIN: "train", Role.AGENT: "run its agents"}
MINUTE_S, HOUR_S = 60.0, 3600.0


def lack_sentence(entry: QueueEntry) -> str:
    """Say in one sentence why the job is in the queue."""
    match entry.lack:
        case Lack.FLOOR:
            return "It begins as soon as it has a machine for everything that it needs."
        case Lack.QUOTA:
            return (
                f"Its project may hold {entry.job.project_quota} machines, and needs them all for other jobs."
            )
        case Lack.ENGINES:
            return "It is at work and could use more machines that roll out."
        case Lack.TURN:
            return "Its next batch is ready and waits for a machine that trains another job."


def shortage_sentence(shortage: Shortage) -> str:
    num = shortage.num_machines
    use = f"to {_NEEDS[shortage.role]}, with the {'tag' if len(shortage.tags) == 1 else 'tags'} "
    use += ", ".join(shortage.tags)
    if not shortage.is_counted:
        return f"It could use more machines {use}."
    what = f"{num} {'machine' if num == 1 else 'machines'} {use}"
    if shortage.num_fitting == 0:
        return f"It lacks {what}: no usable machine has them."
    if shortage.num_fitting < num:
        return f"It lacks {what}: only {shortage.num_fitting} can be used."
    return f"It lacks {what}."


def holder_sentence(holder: Holder, name_of: Callable[..., str]) -> str:
    name = holder.machine.name
    if holder.until is Until.UNUSABLE:
        return f"{holder.reason}."
    if holder.until is Until.OWN_ROLE:
        return f"{name} is needed for another role of the job itself."
    whose = name_of(holder.job)
    if holder.until is Until.RESERVED:
        return f"{name} is kept for {whose}, which is served before it."
    return f"{name} works for {whose} {_until_said(holder)}."


def _until_said(holder: Holder) -> str:
    within_s = holder.within_s
    match holder.until:
        case Until.HANDS_OVER:
            return "and is handing over now"
        case Until.QUANTUM if within_s:
            return (
                f"until its quantum ends in {span_said(within_s)}; it then gives way right after it publishes"
            )
        case Until.QUANTUM:
            return "whose quantum is over; it gives way right after it publishes"
        case Until.STEP if within_s:
            return f"until its step ends; it publishes about every {span_said(within_s)}"
        case Until.STEP:
            return "until its step ends"
        case Until.END if within_s is not None:
            return f"until it ends, in about {span_said(within_s)} if it goes on as it did"
        case Until.SHARE:
            return "as a part of that job's share"
        case _:
            return "until that job ends, pauses or needs fewer machines"


def unblock_sentence(offer: Unblock, entry: QueueEntry, name_of: Callable[..., str]) -> str:
    text = _offer_said(offer, entry)
    if offer.kind is UnblockKind.WAIT:
        return f"{text}."
    return f"{text}, and {_gives_way_said([name_of(job) for job in offer.gives_way])}."


def _offer_said(offer: Unblock, entry: QueueEntry) -> str:
    begins = "could use it at once" if entry.lack is Lack.ENGINES else "would begin at once"
    match offer.kind:
        case UnblockKind.WAIT:
            return _wait_said(offer, entry)
        case UnblockKind.RETAG:
            assert offer.machine is not None
            tags = ", ".join(offer.tags)
            is_role = set(offer.tags) <= ROLE_TAGS
            what = "the tag" if len(offer.tags) == 1 else "the tags"
            doubt = "" if is_role else ", if that is true of it"
            return f"Give {offer.machine.name} {what} {tags}{doubt}: the job {begins}"
        case UnblockKind.QUOTA:
            return f"Raise the quota of its project to {offer.value} machines: the job {begins}"
        case UnblockKind.GRANT:
            return f"Grant the pool {offer.pool} to its project: the job {begins}"
        case UnblockKind.PRIORITY:
            return f"Raise its priority from {entry.job.priority} to {offer.value}: the job {begins}"


def _wait_said(offer: Unblock, entry: QueueEntry) -> str:
    if offer.within_s is not None and offer.at_most_s is not None:
        soonest, latest = span_said(offer.within_s), span_said(offer.at_most_s)
        return f"Wait: its turn comes in {soonest} at the earliest and in {latest} at the latest"
    if entry.lack is Lack.TURN:
        return "Wait: it trains as soon as the step in progress is published"
    if entry.lack is Lack.QUOTA:
        return "Wait until another job of its project ends or pauses"
    if entry.place is not None and entry.place > 1:
        return f"Wait: {entry.place - 1} of the waiting jobs are served before it; when is not known"
    return "Wait until one of the jobs that hold its machines ends or pauses; when is not known"


def _gives_way_said(names: Sequence[str]) -> str:
    if not names:
        return "no other job stops for it"
    if len(names) == 1:
        return f"{names[0]} stops for it"
    return f"{len(names)} jobs stop for it, such as {names[0]}"


def span_said(seconds: float) -> str:
    """Return a length of time in the largest unit that keeps it above one."""
    if seconds < MINUTE_S:
        return f"{max(seconds, 1.0):.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"
