-- fragment: live
p.state IN ({live_states})

-- fragment: running
j.state IN ({JobState.STARTING}, {JobState.RUNNING}) AND j.desired = {DesiredJobState.RUN}

-- fragment: shown
j.id, j.project_id, j.model_path, j.latest_version, j.created_at, j.train_fence > 0 AS has_trained

-- fragment: known
working.job_ids || working.next_ids || working.trained_ids

-- fragment: warmest
-- The order in which jobs are kept warm.
seen.is_at_work DESC, seen.is_next DESC, seen.has_trainer_state DESC, seen.created_at, seen.id

-- fragment: machine
-- The machine with the jobs at work on it, those that follow, and those whose last trainer ran here.
cluster_machine m CROSS JOIN LATERAL (SELECT
    ARRAY(SELECT p.job_id FROM scheduling_phase p WHERE p.machine_id = m.id AND {live}) AS job_ids,
    ARRAY(SELECT coalesce(p.next_job_id, p.job_id) FROM scheduling_phase p
          WHERE p.machine_id = m.id AND {live} AND p.next_role <> '') AS next_ids,
    ARRAY(SELECT recent.job_id FROM (
              SELECT p.job_id, p.role, p.fence FROM scheduling_phase p
              WHERE p.machine_id = m.id AND p.role IN ({exclusive})
              ORDER BY p.fence DESC LIMIT {num_remembered}) recent
          JOIN jobs_job j ON j.id = recent.job_id AND j.train_fence = recent.fence
          WHERE recent.role = {Role.TRAIN}) AS trained_ids) working

-- fragment: phases
-- Its live phases, as `SeenPhase`.
(
    SELECT coalesce(json_agg(seen), '[]') FROM (
        SELECT p.id, p.job_id, p.project_id, p.role, p.fence, p.state, p.boot_id, p.engines,
               p.served_version, p.num_batches, p.drain_grace_s, p.gang_id, p.gang_member, works_from.version, v.uri
        FROM scheduling_phase p JOIN jobs_job j ON j.id = p.job_id
        CROSS JOIN LATERAL (SELECT CASE p.role WHEN {Role.ROLLOUT} THEN p.desired_version
                                               ELSE j.latest_version END AS version) works_from
        LEFT JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = works_from.version
        WHERE p.machine_id = m.id AND {live}) seen)

-- fragment: jobs
-- A page of running jobs, as `SeenJob`: those known to the machine, and as many others as can come before the end of
-- the page, so that a heartbeat does not read every job.
(
    SELECT coalesce(json_agg(json_build_object('id', seen.id, 'project_id', seen.project_id,
        'model_path', seen.model_path, 'version', seen.latest_version,
        'uri', (SELECT v.uri FROM policies_policyversion v
                WHERE v.job_id = seen.id AND v.version = seen.latest_version),
        'created_at', seen.created_at, 'is_at_work', seen.is_at_work, 'is_next', seen.is_next,
        'has_trainer_state', seen.has_trainer_state, 'has_trained', seen.has_trained)
        ORDER BY {warmest}), '[]')
    FROM (SELECT * FROM (
              (SELECT {shown}, j.id = ANY (working.job_ids) AS is_at_work, j.id = ANY (working.next_ids) AS is_next,
                      j.id = ANY (working.trained_ids) AS has_trainer_state
               FROM jobs_job j
               WHERE {running} AND j.id = ANY ({known})
                     AND (NOT (m.is_cordoned OR m.is_draining) OR j.id = ANY (working.job_ids)))
              UNION ALL
              (SELECT {shown}, false AS is_at_work, false AS is_next, false AS has_trainer_state
               FROM jobs_job j
               WHERE {running} AND j.id <> ALL ({known}) AND NOT (m.is_cordoned OR m.is_draining)
               ORDER BY j.created_at, j.id LIMIT {per_page} + %(offset)s::bigint)) seen
          ORDER BY {warmest}
          LIMIT {per_page} OFFSET %(offset)s::bigint) seen)

-- name: seen
-- The machine with its live phases and the first page of jobs, as `SeenMachine`. Locks nothing.
SELECT row_to_json(seen)::text FROM (
    SELECT m.id, m.name, m.tags, m.pool, m.is_cordoned, m.is_draining,
           coalesce(h.boot_id = %(boot_id)s::uuid, false) AS is_this_boot, h.anchor_at, h.received_at,
           coalesce(h.num_intervals_acked, 0) AS num_intervals, h.capabilities,
           h.released_devices, ARRAY(SELECT g.project_id FROM cluster_poolgrant g WHERE g.pool = m.pool) AS granted,
           CASE WHEN %(num_sent)s::bigint > 0 THEN (
               SELECT l.ended_at FROM telemetry_ledgerinterval l WHERE l.machine_id = m.id
               ORDER BY l.started_at DESC LIMIT 1) END AS ledger_end_at,
           {phases} AS phases, {jobs} AS jobs,
           (SELECT coalesce(p.next_job_id, p.job_id) FROM scheduling_phase p
            WHERE p.machine_id = m.id AND p.state = {PhaseState.ENDED} AND p.next_role = {Role.TRAIN}
                  AND p.fence = (SELECT q.fence FROM scheduling_phase q
                                 WHERE q.machine_id = m.id AND q.role IN ({exclusive})
                                 ORDER BY q.fence DESC LIMIT 1)) AS ended_before_gang,
           CASE WHEN %(counts)s::bool THEN (SELECT count(*) FROM cluster_machine) END AS num_machines
    FROM {machine} LEFT JOIN cluster_machineheartbeat h ON h.machine_id = m.id
    WHERE m.id = %(machine_id)s::uuid) seen

-- name: store
-- What a heartbeat reports, if the row belongs to its boot, and the machine as it was before. All values are texts, so
-- that PostgreSQL prepares the statement once.
WITH stored AS (
    UPDATE cluster_machineheartbeat
    SET received_at = %(now)s::timestamptz, interval_s = %(interval_s)s::float8,
        open_state = %(open_state)s, open_cause = %(open_cause)s,
        open_since_at = anchor_at + make_interval(secs => %(open_since_s)s::float8),
        num_in_flight = %(num_in_flight)s::int,
        num_intervals_acked = greatest(num_intervals_acked, %(num_sent)s::bigint),
        capabilities = coalesce(%(capabilities)s::jsonb, capabilities)
    WHERE machine_id = %(machine_id)s::uuid AND boot_id = %(boot_id)s::uuid)
{seen}

-- name: lock
-- Locks the row of the machine until the transaction ends, if it belongs to this boot.
SELECT FROM cluster_machineheartbeat
WHERE machine_id = %(machine_id)s::uuid AND boot_id = %(boot_id)s::uuid FOR UPDATE

-- name: more_jobs
-- Another page of jobs.
SELECT {jobs}::text FROM {machine} WHERE m.id = %(machine_id)s::uuid
