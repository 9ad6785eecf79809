"""What must hold for any history, whatever went wrong: pure functions that yield what they find
wrong.

As in Jepsen's checkers, nothing here knows which fault was injected.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from tests.benchmarks.faults.history import History

Item = TypeVar("Item")
SLACK_S = 0.005  # times are stored in microseconds and read as floats
SHORT_ID = 8


def one_owner_at_a_time(history: History) -> Iterator[str]:
    """In the server's own sequence, a machine is leased only after its previous phase ended, and
    under a new fence."""
    holders: dict[str, str] = {}
    for move in history.phase_moves:
        holder = holders.get(move.machine)
        if move.to_state == PhaseState.LEASED:
            if holder is not None:
                yield f"{move.machine} was leased to {_short(move.phase)} before {_short(holder)} had ended"
            holders[move.machine] = move.phase
        elif move.to_state not in LIVE_PHASE_STATES and holder == move.phase:
            del holders[move.machine]
    fences = Counter((phase.machine, phase.fence) for phase in history.phases)
    for (machine, fence), count in fences.items():
        if count > 1:
            yield f"{machine} gave the fence {fence} {count} times"


def one_terminal_state(history: History) -> Iterator[str]:
    """A job's moves form a chain without gaps that enters one terminal state, as its last one, and
    the row agrees."""
    moves = dict(_by(history.moves, lambda move: move.job))
    for job in history.jobs:
        chain = moves.get(job.id, [])
        for earlier, later in pairwise(chain):
            if earlier.to_state != later.from_state:
                yield f"{_short(job.id)} left {later.from_state} after it had become {earlier.to_state}"
        num_ends = sum(move.to_state in TERMINAL_JOB_STATES for move in chain)
        if num_ends != 1:
            yield f"{_short(job.id)} entered a terminal state {num_ends} times"
        elif chain[-1].to_state != job.state:
            yield f"{_short(job.id)} is {job.state}, its last event says {chain[-1].to_state}"


def ended_jobs_hold_no_machine(history: History) -> Iterator[str]:
    over = {job.id for job in history.jobs if job.state in TERMINAL_JOB_STATES}
    for phase in history.phases:
        if phase.job in over and phase.state in LIVE_PHASE_STATES:
            yield f"{_short(phase.job)} is over and still holds {phase.machine}"


def versions_follow_one_another(history: History) -> Iterator[str]:
    """Each published version comes from the next batch, each batch is applied once, and no old
    fence publishes."""
    versions = dict(_by(history.versions, lambda version: version.job))
    for job in history.jobs:
        published = sorted(
            (v for v in versions.get(job.id, []) if v.version > 0), key=lambda version: version.version
        )
        numbers = [version.version for version in published]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{_short(job.id)} has the versions {numbers}"
        if [version.batch_number for version in published] != numbers:
            yield f"{_short(job.id)} applied the batches {[version.batch_number for version in published]}"
        if job.latest_version != len(numbers):
            yield f"{_short(job.id)} says version {job.latest_version}, {len(numbers)} are recorded"
        for earlier, later in pairwise(published):
            if later.train_fence < earlier.train_fence:
                yield f"{_short(job.id)} took version {later.version} from the old fence {later.train_fence}"


def completed_jobs_did_their_work(history: History) -> Iterator[str]:
    for job in history.jobs:
        if job.state == "completed" and job.num_updates not in (None, job.latest_version):
            yield f"{_short(job.id)} completed with {job.latest_version} of {job.num_updates} updates"


def groups_are_batched_or_not(history: History) -> Iterator[str]:
    for group in history.groups:
        if group.state in ("batched", "dropped") and (group.state == "batched") != (
            group.batch_number is not None
        ):
            yield f"group {_short(group.id)} is {group.state} with batch {group.batch_number}"


def rewards_are_true(history: History) -> Iterator[str]:
    """A place in a group is rewarded once, with a value that the environment can give; time lost to
    faults ends no session."""
    bounds = {job.id: job.rewards for job in history.jobs}
    places = Counter(
        (session.group, session.slot) for session in history.sessions if session.reward is not None
    )
    for (group, slot), count in places.items():
        if count > 1:
            yield f"place {slot} of group {_short(group)} was rewarded {count} times"
    for session in history.sessions:
        if session.is_timeout:
            yield f"session {_short(session.id)} ended as a timeout"
        low, high = bounds[session.job]
        if session.reward is not None and not low <= session.reward <= high:
            yield f"session {_short(session.id)} has the reward {session.reward:g}"


def tokens_have_one_version(history: History) -> Iterator[str]:
    """The spans of an answer cover its tokens once: they begin at 0, ascend and end within it."""
    limits = {job.id: job.max_tokens_per_turn for job in history.jobs}
    for answer in history.answers:
        starts = answer.spans[::2]
        is_whole = len(answer.spans) >= 2 and len(answer.spans) % 2 == 0 and starts[0] == 0
        if answer.num_tokens and not (
            is_whole
            and all(earlier < later for earlier, later in pairwise(starts))
            and starts[-1] < answer.num_tokens
        ):
            yield f"an answer of {_short(answer.session)} has the spans {list(answer.spans)}"
        if answer.num_tokens > limits[answer.job]:
            yield f"an answer of {_short(answer.session)} has {answer.num_tokens} tokens"


def turns_are_recorded_once(history: History) -> Iterator[str]:
    """A request that was acknowledged and sent again is one turn."""
    turns: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for answer in history.answers:
        if not answer.is_partial and answer.request is not None:
            turns[answer.session, answer.request].add(answer.turn)
    for (session, _), recorded in turns.items():
        if len(recorded) > 1:
            yield f"one request of {_short(session)} was recorded as {len(recorded)} turns"


def ledger_fills_the_time(history: History) -> Iterator[str]:
    """A machine's intervals neither overlap nor leave gaps: their sum is the time that passed."""
    for machine, intervals in _by(history.intervals, lambda interval: interval.machine):
        in_order = sorted(intervals, key=lambda interval: interval.started_at)
        for interval in in_order:
            if interval.ended_at < interval.started_at - SLACK_S:
                yield f"{machine} has an interval of {interval.ended_at - interval.started_at:.3f} s"
        for earlier, later in pairwise(in_order):
            gap_s = later.started_at - earlier.ended_at
            if abs(gap_s) > SLACK_S:
                said = "nothing for" if gap_s > 0 else "two intervals at once for"
                yield f"{machine}'s ledger has {said} {abs(gap_s):.3f} s"


def submissions_are_kept_once(history: History) -> Iterator[str]:
    """An acknowledged submission exists once, a refused one does not exist, and one without an
    answer exists at most once."""
    stored = Counter(job.submission_key for job in history.jobs if job.submission_key is not None)
    for attempt in history.attempts:
        if attempt.verb == "submit":
            yield from _judged(stored[attempt.key], attempt.is_done, f"submission {attempt.key}")


def edits_are_kept_once(history: History) -> Iterator[str]:
    stored = Counter(edit.reason for edit in history.edits)
    for attempt in history.attempts:
        if attempt.verb == "retag":
            yield from _judged(stored[attempt.key], attempt.is_done, f"edit {attempt.key!r}")


CHECKS: Sequence[Callable[[History], Iterable[str]]] = (
    one_owner_at_a_time,
    one_terminal_state,
    ended_jobs_hold_no_machine,
    versions_follow_one_another,
    completed_jobs_did_their_work,
    groups_are_batched_or_not,
    rewards_are_true,
    tokens_have_one_version,
    turns_are_recorded_once,
    ledger_fills_the_time,
    submissions_are_kept_once,
    edits_are_kept_once,
)


def faults_found(history: History) -> list[str]:
    return [fault for check in CHECKS for fault in check(history)]


def _judged(count: int, is_done: bool | None, what: str) -> Iterator[str]:
    if count > 1:
        yield f"{what} was carried out {count} times"
    if is_done and not count:
        yield f"{what} was acknowledged and is not there"
    if is_done is False and count:
        yield f"{what} was refused and is there"


def _by(items: Iterable[Item], key: Callable[[Item], str]) -> Iterator[tuple[str, list[Item]]]:
    """Group the items by key; within a key they keep their order."""
    for value, group in groupby(sorted(items, key=key), key=key):
        yield value, list(group)


def _short(value: Hashable) -> str:
    return str(value)[-SHORT_ID:]
