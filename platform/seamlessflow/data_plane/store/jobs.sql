-- name: job
-- A job, as `JobRow`.
SELECT id AS job_id, project_id, name, state, spec, model_path, tasks_path, evaluation_tasks_path,
       coalesce((dataset->>'num_groups')::int, 0) AS num_dataset_groups
FROM jobs_job WHERE id = %(job)s

-- name: ended_and_waiting
-- Jobs that are over, or that wait for a reason.
SELECT id, state IN ({over}) AS is_over,
       CASE WHEN state = {JobState.PAUSED} THEN 'the job is paused' ELSE waiting_reason END AS reason
FROM jobs_job
WHERE id = ANY(%(jobs)s) AND (waiting_reason <> '' OR state = {JobState.PAUSED} OR state IN ({over}))

-- name: engines
-- The engine table: engines of active phases with an endpoint and a version, and by how many batches the weights that
-- they serve are behind. Locks nothing.
SELECT p.id AS phase_id, e.replica, p.job_id, e.endpoint, e.served_version, p.fence,
       (j.spec->'rollout'->>'max_num_seqs')::int AS num_slots, m.name AS machine,
       jsonb_array_length(p.engines) > 1 AS has_siblings, p.desired_version > e.served_version AS is_behind,
       CASE WHEN v.version IS NOT NULL THEN j.published_batch - coalesce(v.batch_number, 0) END AS lag,
       (j.spec->'algorithm'->>'max_staleness')::int AS max_lag
FROM scheduling_phase p JOIN jobs_job j ON j.id = p.job_id JOIN cluster_machine m ON m.id = p.machine_id
CROSS JOIN LATERAL jsonb_to_recordset(p.engines) AS e (replica int, endpoint text, served_version bigint)
LEFT JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = e.served_version
WHERE p.role = {Role.ROLLOUT} AND p.state = {PhaseState.ACTIVE} AND e.endpoint <> '' AND e.served_version IS NOT NULL
ORDER BY p.id, e.replica
