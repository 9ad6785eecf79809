-- name: barren
-- Jobs at work whose newest groups, as many in a row as their spec allows, were dropped because too few sessions got a
-- reward, with the last error of the newest. 8: of jobs whose stored spec does not name a number.
SELECT j.id, j.num AS num_groups,
       (SELECT s.reason FROM trajectory_session s
        WHERE s.group_id = row.newest AND s.state = {SessionState.FAILED} AND s.reason <> ''
        ORDER BY s.failure IN ({FailureKind.MACHINE}, {FailureKind.ENGINE}), s.closed_at DESC NULLS LAST
        LIMIT 1) AS error
FROM (SELECT id, coalesce((spec->'environment'->>'pause_after_dropped_groups')::int, 8) AS num,
             greatest(created_at, resumed_at) AS since
      FROM jobs_job WHERE state <> ALL(%(over)s) AND desired = %(run)s) j
CROSS JOIN LATERAL (
    SELECT count(*) AS num, bool_and(g.drop_cause = %(cause)s) AS is_barren,
           (array_agg(g.id ORDER BY g.finalized_at DESC))[1] AS newest
    FROM (SELECT id, drop_cause, finalized_at FROM trajectory_group
          WHERE job_id = j.id AND evaluation_version IS NULL AND finalized_at > j.since
          ORDER BY finalized_at DESC LIMIT j.num) g) row
WHERE row.num = j.num AND row.is_barren

-- name: ends
-- The newest ends of the sessions of each job at work, newest first. `finalized_at` is null while a group runs; the
-- sessions of the newest groups are found by the index of groups.
SELECT j.id, s.group_id::text, coalesce(m.name, '') AS machine, s.failure, s.is_timeout, s.reason
FROM (SELECT id, greatest(created_at, resumed_at) AS since FROM jobs_job
      WHERE state <> ALL(%(over)s) AND desired = %(run)s) j
CROSS JOIN LATERAL (SELECT id, lease_phase_id FROM trajectory_group WHERE job_id = j.id
                    ORDER BY index DESC LIMIT {num_groups}) g
JOIN LATERAL (SELECT group_id, failure, is_timeout, reason, closed_at FROM trajectory_session
              WHERE group_id = g.id AND closed_at > j.since AND NOT is_requeued) s ON true
LEFT JOIN scheduling_phase p ON p.id = g.lease_phase_id LEFT JOIN cluster_machine m ON m.id = p.machine_id
ORDER BY j.id, s.closed_at DESC
