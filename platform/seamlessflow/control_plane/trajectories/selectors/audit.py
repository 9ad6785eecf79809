"""Checks that a job's records are complete: nothing is lost or stored twice. Read-only; used after injected faults.

Each check is a function from the job to a `Check`; SQL over the tables of both planes counts the faults.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zstandard
from django.db import connection

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.lifecycle.groups import BatchState, EvaluationState, GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.tags import Role

ZSTD_HEADER_BYTES = 18  # the longest frame header
LEDGER_TOLERANCE_S = 0.001


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
    rows = _rows("SELECT batch_number, count(*) FROM policies_policyversion "
                 "WHERE job_id = %s AND batch_number IS NOT NULL GROUP BY batch_number", [job.id])  # fmt: skip
    published = dict(rows)
    expected = range(1, job.published_batch + 1)
    missing = [number for number in expected if number not in published]
    doubled = [number for number, count in rows if count > 1]
    beyond = [number for number in published if number > job.published_batch]
    figures = {
        "published_batch": job.published_batch,
        "missing": missing,
        "doubled": doubled,
        "beyond": beyond,
    }
    return _check(
        "batches_published_once", not (missing or doubled or beyond), "batches in versions", figures
    )


def batches_numbered_without_gaps(job: Job) -> Check:
    """Stored batches are 1..M, M ≥ N; those before N are applied or forgotten (N itself follows a moment later)."""
    ((count, newest, distinct, not_applied),) = _rows(
        "SELECT count(*), coalesce(max(number), 0), count(DISTINCT number), "
        f"count(*) FILTER (WHERE number < %s AND state = '{BatchState.LEASED}') "
        "FROM trajectory_batch WHERE job_id = %s",
        [job.published_batch, job.id],
    )
    ok = count == newest == distinct and newest >= job.published_batch and not not_applied
    figures = {"num_batches": count, "newest": newest, "published_but_leased": not_applied}
    return _check("batches_numbered_without_gaps", ok, "stored batches", figures)


def groups_in_one_batch(job: Job) -> Check:
    """A group has a batch number if and only if it is batched, and each batch has as many groups as its row says."""
    ((strays,),) = _rows(
        "SELECT count(*) FROM trajectory_group "
        f"WHERE job_id = %s AND (state = '{GroupState.BATCHED}') <> (batch_number IS NOT NULL)", [job.id])  # fmt: skip
    ((unequal,),) = _rows(
        "SELECT count(*) FROM trajectory_batch b WHERE b.job_id = %s AND b.num_groups <> "
        "(SELECT count(*) FROM trajectory_group g WHERE g.job_id = b.job_id AND g.batch_number = b.number) "
        "AND NOT EXISTS (SELECT 1 FROM trajectory_dataset d WHERE d.job_id = b.job_id)",
        [job.id],
    )
    figures = {"groups_with_wrong_state": strays, "batches_with_other_groups": unequal}
    return _check("groups_in_one_batch", not (strays or unequal), "groups against batches", figures)


def batched_sessions_closed(job: Job) -> Check:
    ((still_open,),) = _rows(
        "SELECT count(*) FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id "
        f"WHERE g.job_id = %s AND g.state = '{GroupState.BATCHED}' AND s.state = '{SessionState.OPEN}'",
        [job.id],
    )
    return _check(
        "batched_sessions_closed", not still_open, "sessions of batched groups", {"open": still_open}
    )


def trees_are_whole(job: Job) -> Check:
    """The node indexes of a session are 0, 1, 2, …; a parent exists and comes first; only roots have no parent."""
    ((gaps,),) = _rows(
        "SELECT count(*) FROM (SELECT session_id FROM trajectory_node WHERE job_id = %s GROUP BY session_id "
        "HAVING min(node_index) <> 0 OR max(node_index) <> count(*) - 1) s", [job.id])  # fmt: skip
    ((orphans,),) = _rows(
        "SELECT count(*) FROM trajectory_node n WHERE n.job_id = %s AND (n.parent_index >= n.node_index "
        "OR (n.parent_index IS NULL) <> (n.kind = 0) OR (n.parent_index IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM trajectory_node p WHERE p.month = n.month AND p.session_id = n.session_id "
        "AND p.node_index = n.parent_index)))", [job.id])  # fmt: skip
    figures = {"sessions_with_gaps": gaps, "nodes_without_parent": orphans}
    return _check("trees_are_whole", not (gaps or orphans), "nodes", figures)


def version_spans_add_up(job: Job) -> Check:
    """The spans of a sampled node start at 0, rise and end within its tokens; their extremes are those of its row."""
    ((total, wrong, unknown),) = _rows(
        """
        SELECT count(*), count(*) FILTER (WHERE NOT coalesce(
                   cardinality(version_spans) >= 2 AND cardinality(version_spans) %% 2 = 0 AND version_spans[1] = 0
                   AND version_spans[cardinality(version_spans) - 1] < num_tokens
                   AND NOT EXISTS (SELECT 1 FROM generate_series(3, cardinality(version_spans), 2) i
                                   WHERE version_spans[i] <= version_spans[i - 2]), false)),
               count(*) FILTER (WHERE EXISTS (SELECT 1 FROM generate_series(2, cardinality(version_spans), 2) i
                                              WHERE version_spans[i] < 0))
        FROM trajectory_node WHERE job_id = %s AND kind = 2 AND num_tokens > 0
        """,
        [job.id],
    )
    figures = {"sampled_nodes": total, "wrong": wrong, "with_unknown_version": unknown}
    return _check("version_spans_add_up", not wrong, "version spans", figures)


def logprobs_match_tokens(job: Job) -> Check:
    """Every sampled token has four bytes of id and four of logprob; sizes are read from the headers of the frames."""
    rows = _rows(
        "SELECT num_tokens, substring(token_ids FOR %s), substring(logprobs FOR %s) FROM trajectory_node "
        "WHERE job_id = %s AND kind = 2", [ZSTD_HEADER_BYTES, ZSTD_HEADER_BYTES, job.id])  # fmt: skip
    wrong = sum(1 for num_tokens, ids, logprobs in rows if not _sizes_match(num_tokens, ids, logprobs))
    tokens = sum(row[0] for row in rows)
    figures = {"sampled_nodes": len(rows), "sampled_tokens": tokens, "wrong": wrong}
    return _check("logprobs_match_tokens", not wrong, "sampled tokens", figures)


def turns_recorded_once(job: Job) -> Check:
    """A turn's nodes are in one session, under one parent, and each session counts its acknowledged turns."""
    ((spread,),) = _rows(
        "SELECT count(*) FROM (SELECT turn_id FROM trajectory_node WHERE job_id = %s AND kind = 2 AND NOT is_partial "
        "GROUP BY turn_id HAVING count(DISTINCT session_id) > 1 OR count(DISTINCT parent_index) > 1) t",
        [job.id],
    )
    ((sessions, miscounted, turns),) = _rows(
        "SELECT count(*), count(*) FILTER (WHERE s.num_turns <> coalesce(t.turns, 0)), coalesce(sum(t.turns), 0) "
        "FROM trajectory_session s LEFT JOIN (SELECT session_id, count(DISTINCT turn_id) AS turns "
        "FROM trajectory_node WHERE job_id = %s AND kind = 2 AND NOT is_partial GROUP BY session_id) t "
        "ON t.session_id = s.id WHERE s.job_id = %s",
        [job.id, job.id],
    )
    figures = {
        "sessions": sessions,
        "turns": int(turns),
        "sessions_miscounted": miscounted,
        "turns_spread": spread,
    }
    return _check("turns_recorded_once", not (spread or miscounted), "acknowledged turns", figures)


def ledger_sums_to_wall_time(job: Job) -> Check:
    """The ledger intervals of each machine that the job used are adjacent, from the first to the last in its time."""
    rows = _rows(
        """
        SELECT m.name, count(*), count(*) FILTER (WHERE i.gap_s > %s OR i.gap_s < -%s),
               extract(epoch FROM max(i.ended_at) - min(i.started_at)) AS wall_s,
               extract(epoch FROM sum(i.ended_at - i.started_at)) AS sum_s
        FROM (SELECT machine_id, started_at, ended_at, extract(epoch FROM started_at - lag(ended_at)
                     OVER (PARTITION BY machine_id ORDER BY started_at)) AS gap_s
              FROM telemetry_ledgerinterval
              WHERE machine_id IN (SELECT machine_id FROM scheduling_phase WHERE job_id = %s)
                AND ended_at >= %s AND started_at <= %s) i
        JOIN cluster_machine m ON m.id = i.machine_id GROUP BY m.name ORDER BY m.name
        """,
        [LEDGER_TOLERANCE_S, LEDGER_TOLERANCE_S, job.id, job.created_at, job.ended_at or database_now()],
    )
    machines = {
        name: {"intervals": count, "breaks": breaks, "wall_s": float(wall_s), "sum_s": float(sum_s)}
        for name, count, breaks, wall_s, sum_s in rows
    }
    ok = all(
        not figure["breaks"]
        and abs(figure["wall_s"] - figure["sum_s"]) <= LEDGER_TOLERANCE_S * figure["intervals"]
        for figure in machines.values()
    )
    return _check("ledger_sums_to_wall_time", ok, "ledgers of its machines", {"machines": machines})


def no_phase_outlives_the_job(job: Job) -> Check:
    ((live,),) = _rows(
        "SELECT count(*) FROM scheduling_phase WHERE job_id = %s AND state = ANY(%s)",
        [job.id, sorted(state.value for state in LIVE_PHASE_STATES)],
    )
    has_ended = JobState(job.state) in TERMINAL_JOB_STATES
    return _check(
        "no_phase_outlives_the_job",
        not (has_ended and live),
        "live phases",
        {"live": live, "state": job.state},
    )


def one_live_phase_per_machine(job: Job) -> Check:
    """Phases of a machine that roll out or train never overlap, nor do agent phases of the job, and their fences grow
    with time."""
    ((overlaps,),) = _rows(
        "SELECT count(*) FROM scheduling_phase a JOIN scheduling_phase b ON a.machine_id = b.machine_id "
        "AND a.fence < b.fence WHERE a.job_id = %s AND (a.ended_at IS NULL OR b.leased_at < a.ended_at) "
        "AND (a.role = %s) = (b.role = %s) AND (a.role <> %s OR a.job_id = b.job_id)",
        [job.id, *[Role.AGENT.value] * 3],
    )
    return _check("one_live_phase_per_machine", not overlaps, "phases in time", {"overlaps": overlaps})


def staleness_bound_kept(job: Job) -> Check:
    """No batch has a trained token older than the bound when it was assembled."""
    bound = job.resolved_spec.algorithm.max_staleness
    ((largest, beyond),) = _rows(
        "SELECT max(policy_version - min_version), count(*) FILTER (WHERE policy_version - min_version > %s) "
        "FROM trajectory_batch WHERE job_id = %s AND min_version IS NOT NULL",
        [bound, job.id],
    )
    return _check(
        "staleness_bound_kept",
        not beyond,
        "staleness",
        {"bound": bound, "largest": largest, "beyond": beyond},
    )


def held_out_never_trained(job: Job) -> Check:
    """Groups of evaluations, and only these, have the states of evaluations; none of them is in a batch."""
    ((strays,),) = _rows(
        "SELECT count(*) FROM trajectory_group WHERE job_id = %s AND ((evaluation_version IS NOT NULL) <> "
        f"(state IN ('{GroupState.EVALUATING}', '{GroupState.EVALUATED}')) "
        "OR evaluation_version IS NOT NULL AND batch_number IS NOT NULL)",
        [job.id],
    )
    ((unequal,),) = _rows(
        f"SELECT count(*) FROM trajectory_evaluation e WHERE e.job_id = %s AND e.state = '{EvaluationState.FINISHED}' "
        "AND e.num_tasks <> "
        "(SELECT count(*) FROM trajectory_group g WHERE g.job_id = e.job_id AND g.evaluation_version = e.version "
        f"AND g.state = '{GroupState.EVALUATED}')",
        [job.id],
    )
    figures = {"groups_with_wrong_state": strays, "finished_without_all_tasks": unequal}
    return _check("held_out_never_trained", not (strays or unequal), "groups of evaluations", figures)


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


def _rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
