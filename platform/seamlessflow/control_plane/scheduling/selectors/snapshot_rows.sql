-- fragment: machines
-- Machines with what they report, their judgement, and a row for each live phase. Locks nothing.
SELECT m.id, m.name, m.tags::text[], m.pool, m.cost, m.is_cordoned, m.is_draining,
       extract(epoch FROM statement_timestamp() - h.received_at)::float8 AS unheard_s,
       coalesce(h.interval_s, 0) AS interval_s, h.capabilities, coalesce(h.num_in_flight, 0) AS num_in_flight,
       coalesce(q.judged_fence, 0) AS judged_fence,
       q.reason AS quarantine_reason, q.num_quarantines, q.until_at, q.is_slow,
       extract(epoch FROM q.until_at - q.quarantined_at)::float8 AS backoff_s,
       extract(epoch FROM statement_timestamp() - q.quarantined_at)::float8 AS quarantine_age_s,
       q.quarantined_at IS NOT NULL AND EXISTS (
           SELECT FROM scheduling_phase tried
           WHERE tried.machine_id = m.id AND tried.fence > q.judged_fence
                 AND tried.state = {PhaseState.ENDED} AND tried.active_at IS NOT NULL
                 AND (tried.role <> {Role.AGENT} OR NOT m.tags::text[] && ARRAY[{exclusive}])
       ) AS is_proven,
       p.id AS phase_id, p.job_id, p.role, p.state, p.fence, p.desired_version, p.served_version,
       extract(epoch FROM statement_timestamp() - CASE p.state
           WHEN {PhaseState.DRAINING} THEN coalesce(p.draining_at, p.leased_at)
           WHEN {PhaseState.ACTIVE} THEN coalesce(p.active_at, p.leased_at)
           ELSE p.leased_at END)::float8 AS phase_age_s,
       p.num_batches, p.next_role, p.next_job_id, p.next_num_batches, p.next_reason,
       p.gang_id, p.gang_member,
       CASE WHEN p.gang_id IS NOT NULL THEN (
           SELECT coalesce(nullif(fellow.reason, ''), 'it failed') FROM scheduling_phase fellow
           WHERE fellow.gang_id = p.gang_id AND fellow.state = {PhaseState.FAILED}
           ORDER BY fellow.ended_at LIMIT 1) END AS gang_failure,
       p.gang_id IS NOT NULL AND EXISTS (
           SELECT FROM scheduling_phase fellow
           WHERE fellow.gang_id = p.gang_id AND fellow.state = {PhaseState.ENDED}) AS gang_has_ended
FROM cluster_machine m
LEFT JOIN cluster_machineheartbeat h ON h.machine_id = m.id
LEFT JOIN scheduling_machinejudgement q ON q.machine_id = m.id
LEFT JOIN scheduling_phase p ON p.machine_id = m.id AND p.state IN ({live})

-- name: all_machines
-- Every machine, for a cycle of the scheduler.
{machines}
ORDER BY m.name, p.job_id

-- name: some_machines
-- The machines of a lease, which locks their rows before: a statement that waits for a lock reads other rows, such as
-- the phases, as of its beginning.
{machines}
WHERE m.id = ANY(%(machine_ids)s)
ORDER BY m.name, p.job_id

-- name: jobs
-- Unfinished jobs with what they need and have. What is over is counted by indices alone. Locks nothing.
SELECT j.id, j.state, j.desired, j.latest_version, j.published_batch, j.num_failures, j.pause_reason,
       j.waiting_reason,
       j.project_id, project.weight AS project_weight, project.machine_quota AS project_quota,
       project.priority_ceiling, j.name, j.priority, j.owed,
       extract(epoch FROM statement_timestamp() - coalesce(j.queued_at, j.created_at))::float8 AS waiting_s,
       extract(epoch FROM statement_timestamp() - j.admitted_at)::float8 AS admitted_s,
       extract(epoch FROM statement_timestamp() - (
           SELECT v.published_at FROM policies_policyversion v
           WHERE v.job_id = j.id AND v.version = j.latest_version AND v.version > 0))::float8 AS published_s,
       ARRAY(SELECT p.machine_id FROM scheduling_phase p
             WHERE p.job_id = j.id AND p.role = {Role.TRAIN} AND p.fence = j.train_fence) AS trainer_state,
       (SELECT CASE WHEN bool_and(g.turns IS NOT NULL) THEN coalesce(sum((g.turns->>j.id::text)::int), 0) END
        FROM trajectory_gateway g)::int AS num_turns,
       groups.num_ready, groups.num_open,
       (SELECT count(*) FROM trajectory_batch b
        WHERE b.job_id = j.id AND b.number > j.published_batch) AS num_unpublished,
       (SELECT p.reason FROM scheduling_phase p WHERE p.job_id = j.id AND p.state = {PhaseState.FAILED}
        ORDER BY p.ended_at DESC LIMIT 1) AS last_failure,
       j.evaluation_tasks_path <> '' AND NOT EXISTS (
           SELECT FROM trajectory_evaluation e
           WHERE e.job_id = j.id AND e.version = j.latest_version AND e.state = {EvaluationState.FINISHED}
       ) AS awaits_evaluation,
       (SELECT extract(epoch FROM statement_timestamp() - g.ready_at) FROM trajectory_group g
        WHERE g.job_id = j.id AND g.state = {GroupState.READY} ORDER BY g.ready_at
        OFFSET (j.spec->'rollout'->>'groups_per_batch')::int - 1 LIMIT 1)::float8 AS due_age_s,
       (SELECT extract(epoch FROM max(v.published_at) - min(v.published_at)) / nullif(count(*) - 1, 0)
        FROM policies_policyversion v WHERE v.job_id = j.id AND v.version > j.latest_version - 5
       )::float8 AS batch_interval_s,
       (SELECT avg(extract(epoch FROM t.active_at - before.draining_at + after.active_at - t.ended_at))
        FROM (SELECT * FROM scheduling_phase p WHERE p.job_id = j.id AND p.role = {Role.TRAIN}
              ORDER BY p.leased_at DESC LIMIT 5) t
        JOIN scheduling_phase before ON before.machine_id = t.machine_id AND before.fence = (
            SELECT max(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence < t.fence
                  AND p.role IN ({exclusive}))
        JOIN scheduling_phase after ON after.machine_id = t.machine_id AND after.fence = (
            SELECT min(p.fence) FROM scheduling_phase p WHERE p.machine_id = t.machine_id AND p.fence > t.fence
                  AND p.role IN ({exclusive}))
        WHERE t.num_batches IS NOT NULL AND before.role = {Role.ROLLOUT} AND after.role = {Role.ROLLOUT}
       )::float8 AS hand_over_s,
       extract(epoch FROM statement_timestamp() - j.resumed_at)::float8 AS resumed_s,
       CASE WHEN (j.spec->'environment'->'num_machines'->>'max')::int > 1 THEN (
           SELECT count(*) FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id
           WHERE g.job_id = j.id AND g.state = {GroupState.OPEN} AND s.state = {SessionState.OPEN}
       ) END AS num_sessions,
       CASE WHEN j.spec->'environment'->>'name' = 'external' THEN (
           SELECT CASE WHEN count(*) FILTER (WHERE s.state = {SessionState.OPEN}) = 0
                  THEN coalesce(extract(epoch FROM statement_timestamp() - max(s.closed_at)), 'infinity') END
           FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id
           WHERE g.job_id = j.id AND g.state IN ({GroupState.READY}, {GroupState.OPEN})) END::float8 AS closed_s
FROM jobs_job j
JOIN accounts_project project ON project.id = j.project_id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE g.state = {GroupState.READY}) AS num_ready,
           count(*) FILTER (WHERE g.state = {GroupState.OPEN}) AS num_open
    FROM trajectory_group g
    WHERE g.job_id = j.id AND g.state IN ({GroupState.READY}, {GroupState.OPEN})) groups
WHERE j.state NOT IN ({over})
ORDER BY j.created_at, j.id
