"""Checks that a job's records are complete: nothing is lost or stored twice. Read-only; used after injected faults.

Each check is a function from the job to a `Check`; SQL over the tables of both planes counts the faults. Columns have
the names of the figures that a check reports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zstandard

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.database.prepared import named_rows
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.lifecycle.groups import BatchState, EvaluationState, GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.tags import Role
from seamlessflow.runtime.sql import statements

ZSTD_HEADER_BYTES = 18  # the longest frame header
LEDGER_TOLERANCE_S = 0.001
SQL = statements(
    __name__, BatchState, EvaluationState, GroupState, Role, SessionState, live=LIVE_PHASE_STATES
)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditReport:
    ok: bool
    checks: list[Check]


def job_audit(job: Job) -> AuditReport:
    """Run every check on the job's current rows; if its nodes were deleted, without the checks of nodes.

    Checks are strictest once the job has ended.
    """
    gone = OF_NODES if job.trajectories_deleted_at is not None else ()
    checks = [check(job) for check in CHECKS if check not in gone]
    return AuditReport(ok=all(check.ok for check in checks), checks=checks)


def batches_published_once(job: Job) -> Check:
    """Batches 1..N are in exactly one published version each."""
    num_versions = {row.batch_number: row.num_versions for row in _rows("published_batches", job)}
    expected = range(1, job.published_batch + 1)
    faults = {
        "missing": [number for number in expected if number not in num_versions],
        "doubled": [number for number, num in num_versions.items() if num > 1],
        "beyond": [number for number in num_versions if number > job.published_batch],
    }
    figures = {"published_batch": job.published_batch, **faults}
    return _check("batches_published_once", not any(faults.values()), "batches in versions", figures)


def batches_numbered_without_gaps(job: Job) -> Check:
    """Stored batches are 1..M, M ≥ N; those before N are applied or forgotten (N itself follows a moment later)."""
    (row,) = _rows("stored_batches", job, published=job.published_batch)
    has_gaps = not row.num_batches == row.newest == row.num_numbers
    ok = not has_gaps and row.newest >= job.published_batch and not row.published_but_leased
    figures = {name: getattr(row, name) for name in ("num_batches", "newest", "published_but_leased")}
    return _check("batches_numbered_without_gaps", ok, "stored batches", figures)


def groups_in_one_batch(job: Job) -> Check:
    """A group has a batch number if and only if it is batched, and each batch has as many groups as its row says."""
    return _faultless("groups_in_one_batch", "groups against batches", job)


def batched_sessions_closed(job: Job) -> Check:
    return _faultless("batched_sessions_closed", "sessions of batched groups", job)


def trees_are_whole(job: Job) -> Check:
    """The node indexes of a session are 0, 1, 2, …; a parent exists and comes first; only roots have no parent."""
    return _faultless("trees_are_whole", "nodes", job)


def version_spans_add_up(job: Job) -> Check:
    """The spans of a sampled node start at 0, rise and end within its tokens; their extremes are those of its row."""
    (row,) = _rows("version_spans", job)
    return _check("version_spans_add_up", not row.wrong, "version spans", row._asdict())


def logprobs_match_tokens(job: Job) -> Check:
    """Every sampled token has four bytes of id and four of logprob; sizes are read from the headers of the frames."""
    rows = _rows("headers", job, num_bytes=ZSTD_HEADER_BYTES)
    wrong = sum(1 for row in rows if not _sizes_match(row.num_tokens, row.token_ids, row.logprobs))
    tokens = sum(row.num_tokens for row in rows)
    figures = {"sampled_nodes": len(rows), "sampled_tokens": tokens, "wrong": wrong}
    return _check("logprobs_match_tokens", not wrong, "sampled tokens", figures)


def turns_recorded_once(job: Job) -> Check:
    """A turn's nodes are in one session, under one parent, and each session counts its acknowledged turns."""
    (row,) = _rows("turns", job)
    ok = not (row.turns_spread or row.sessions_miscounted)
    return _check("turns_recorded_once", ok, "acknowledged turns", row._asdict())


def ledger_sums_to_wall_time(job: Job) -> Check:
    """The ledger intervals of each machine that the job used are adjacent, from the first to the last in its time."""
    end_at = job.ended_at or database_now()
    rows = _rows("ledgers", job, begin_at=job.created_at, end_at=end_at, tolerance_s=LEDGER_TOLERANCE_S)
    ok = all(
        not row.breaks and abs(row.wall_s - row.sum_s) <= LEDGER_TOLERANCE_S * row.intervals for row in rows
    )
    machines = {
        row.name: {"intervals": row.intervals, "breaks": row.breaks, "wall_s": row.wall_s, "sum_s": row.sum_s}
        for row in rows
    }
    return _check("ledger_sums_to_wall_time", ok, "ledgers of its machines", {"machines": machines})


def no_phase_outlives_the_job(job: Job) -> Check:
    (row,) = _rows("live_phases", job)
    has_ended = JobState(job.state) in TERMINAL_JOB_STATES
    figures = {"live": row.live, "state": job.state}
    return _check("no_phase_outlives_the_job", not (has_ended and row.live), "live phases", figures)


def one_live_phase_per_machine(job: Job) -> Check:
    """Phases of a machine that roll out or train never overlap, nor do agent phases of the job, and their fences grow
    with time."""
    return _faultless("one_live_phase_per_machine", "phases in time", job)


def staleness_bound_kept(job: Job) -> Check:
    """No batch has a trained token older than the bound when it was assembled."""
    bound = job.resolved_spec.algorithm.max_staleness
    (row,) = _rows("staleness", job, bound=bound)
    return _check("staleness_bound_kept", not row.beyond, "staleness", {"bound": bound, **row._asdict()})


def held_out_never_trained(job: Job) -> Check:
    """Groups of evaluations, and only these, have the states of evaluations; none of them is in a batch."""
    return _faultless("held_out_never_trained", "groups of evaluations", job)


CHECKS: Sequence[Callable[[Job], Check]] = (
    batches_published_once,
    batches_numbered_without_gaps,
    groups_in_one_batch,
    batched_sessions_closed,
    trees_are_whole,
    version_spans_add_up,
    logprobs_match_tokens,
    turns_recorded_once,
    ledger_sums_to_wall_time,
    no_phase_outlives_the_job,
    one_live_phase_per_machine,
    staleness_bound_kept,
    held_out_never_trained,
)

OF_NODES = (trees_are_whole, version_spans_add_up, logprobs_match_tokens, turns_recorded_once)


def _check(name: str, ok: bool, subject: str, figures: dict[str, Any]) -> Check:
    listed = ", ".join(f"{key} {value}" for key, value in figures.items())
    return Check(
        name=name, ok=ok, detail=f"{subject}: {'whole' if ok else 'BROKEN'} ({listed})", figures=figures
    )


def _sizes_match(num_tokens: int, ids: bytes | None, logprobs: bytes | None) -> bool:
    if ids is None or logprobs is None:
        return False
    sizes = (zstandard.frame_content_size(bytes(packed)) for packed in (ids, logprobs))
    return all(size == 4 * num_tokens for size in sizes)


def _faultless(name: str, subject: str, job: Job) -> Check:
    """Return the check whose statement counts faults, of which there must be none."""
    (row,) = _rows(name, job)
    return _check(name, not any(row), subject, row._asdict())


def _rows(name: str, job: Job, **values: Any) -> list[Any]:
    return named_rows(SQL[name], {"job": job.id, **values})
