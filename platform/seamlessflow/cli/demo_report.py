"""The demo's progress line, summary and judgement: pure text from the answers of the REST API.

Takes decoded JSON of a job, its summary, ledger and audit; returns lines of text and a list of shortfalls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.core.telemetry.activity import OTHER_JOBS
from seamlessflow.core.trajectory.prefix_tree import ForkCause
from seamlessflow.core.types.ledger import LedgerState

Json = Mapping[str, Any]
_BARS = " ▁▂▃▄▅▆▇█"

MIN_RISE = 0.3
MIN_FINAL_REWARD = 0.75
NUM_UPDATES_JUDGED = 30  # a shorter run only promises to complete with a clean audit
MAX_DRIFT_WITHOUT_LEARNING = 0.1


@dataclass(frozen=True, slots=True)
class Judgement:
    """The shortfalls of the demo; none means success."""

    shortfalls: tuple[str, ...]

    @property
    def is_success(self) -> bool:
        return not self.shortfalls


def progress_line(job: Json, *, elapsed_s: float) -> str:
    reward = job["progress"].get("reward_mean")
    shown = "  –  " if reward is None else f"{reward:5.2f}"
    version = f"version {job['latest_version']:>3}/{job['progress']['num_updates']}"
    line = f"{elapsed_s:5.0f} s  {job['state']:<9} {version}  reward {shown}"
    return f"{line}  {job['waiting_reason']}".rstrip()


def sparkline(values: Sequence[float]) -> str:
    """Return rewards in [0, 1] as a row of bars."""
    return "".join(_BARS[round(min(max(value, 0.0), 1.0) * (len(_BARS) - 1))] for value in values)


def summary_lines(job: Json, summary: Json, ledger: Json, audit: Json, *, running_s: float) -> Iterator[str]:
    yield f"job        {job['id']}  {job['state']}  {job['state_reason']}".rstrip()
    yield (
        f"reward     {_number(summary['reward_first_tenth'])} → {_number(summary['reward_last_tenth'])}"
        f"  {sparkline(summary['reward_by_tenth'])}  (first and last tenth of {summary['num_groups_trained']} groups)"
    )
    yield f"updates    {job['latest_version']} policy versions in {running_s:.0f} s"
    yield (
        f"tokens     {summary['num_sampled_tokens']} sampled ({summary['num_sampled_tokens'] / running_s:.0f}/s), "
        f"{summary['num_trained_tokens']} trained ({summary['num_trained_tokens'] / running_s:.0f}/s), "
        f"{summary['num_wasted_tokens']} discarded"
    )
    yield (
        f"turns      {summary['num_turns']}, of which {summary['num_turns_handed_over']} handed over, "
        f"{summary['num_turns_continued']} continued from their own tokens, "
        f"{summary['num_turns_of_several_versions']} of several versions; largest gap {_number(summary['max_gap_s'])} s"
    )
    if summary["joins"] is not None:
        yield f"joins      {joins_line(summary['joins'])}"
    for machine in ledger["machines"]:
        yield f"{machine['name']:<10} {_shares(machine['totals'])}"
    faults = [check["name"] for check in audit["checks"] if not check["ok"]]
    yield (
        f"audit      BAD: {', '.join(faults)}" if faults else f"audit      {len(audit['checks'])} checks hold"
    )


def holding_lines(ledgers: Mapping[str, Json]) -> Iterator[str]:
    """Say how long each machine worked for which job, by the ledgers of the jobs."""
    machines = sorted({machine["name"] for ledger in ledgers.values() for machine in ledger["machines"]})
    for name in machines:
        worked = [f"{job} {_working_s(ledger, name):.0f} s" for job, ledger in ledgers.items()]
        yield f"{name:<10} worked for {', '.join(worked)}"


def _working_s(ledger: Json, machine: str) -> float:
    """Return the seconds in which the machine did something for the ledger's job."""
    others = (LedgerState.IDLE, OTHER_JOBS)
    totals = [one["totals"] for one in ledger["machines"] if one["name"] == machine]
    return sum(float(total["duration_s"]) for of in totals for total in of if total["state"] not in others)


def joins_line(joins: Json) -> str:
    """Say how many turns joined their trees cleanly, and why others did not, most frequent cause first."""
    ranked = sorted(joins["causes"].items(), key=lambda entry: -entry[1])
    others = [f"{number} × {ForkCause[cause.upper()]}" for cause, number in ranked]
    clean = f"{joins['num_clean']} of {joins['num_turns']} clean"
    if joins.get("num_conversations"):
        clean += f" in {joins['num_conversations']} conversations"
    return "; ".join([clean, *others])


def judge(job: Json, summary: Json, audit: Json, *, learning_rate: float, is_handing_over: bool) -> Judgement:
    """Apply the demo's criteria: the reward rises, or stays level with LR=0, and a machine with two roles hands
    over."""
    num_updates = job["progress"]["num_updates"]
    first, last = summary["reward_first_tenth"], summary["reward_last_tenth"]
    shortfalls = []
    if job["state"] != "completed":
        shortfalls.append(f"the job ended {job['state']}: {job['state_reason']}")
    if not audit["ok"]:
        shortfalls.append("the audit found faults")
    if job["latest_version"] < num_updates:
        shortfalls.append(f"only {job['latest_version']} of {num_updates} versions were published")
    if is_short(job):
        return Judgement(tuple(shortfalls))
    if first is None or last is None:
        shortfalls.append("too few groups were trained to compare the first and the last tenth")
    elif learning_rate == 0 and abs(last - first) > MAX_DRIFT_WITHOUT_LEARNING:
        shortfalls.append(f"without learning the reward moved by {last - first:+.2f}")
    elif learning_rate > 0:
        shortfalls += _rise_shortfalls(first, last)
    if is_handing_over and summary["num_turns_continued"] == 0:
        shortfalls.append("no request was handed over and continued")
    return Judgement(tuple(shortfalls))


def is_short(job: Json) -> bool:
    """Whether the job has too few updates for a promise about its reward."""
    return int(job["progress"]["num_updates"]) < NUM_UPDATES_JUDGED


def _rise_shortfalls(first: float, last: float) -> Iterator[str]:
    if last - first < MIN_RISE:
        yield f"the reward rose by {last - first:.2f}, but {MIN_RISE} is expected"
    if last <= MIN_FINAL_REWARD:
        yield f"the last tenth's reward is {last:.2f}, but more than {MIN_FINAL_REWARD} is expected"


def _shares(totals: Sequence[Json]) -> str:
    """Return `serving:full 61 %, training 22 %, idle:no_batch 3 %`, largest first; sums to 100 %."""
    shown = sorted(totals, key=lambda total: -total["share"])
    names = (f"{total['state']}:{total['cause']}" if total["cause"] else total["state"] for total in shown)
    return ", ".join(f"{name} {100 * total['share']:.1f} %" for name, total in zip(names, shown, strict=True))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
