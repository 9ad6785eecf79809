-- name: store
-- Intervals of one machine, oldest first. A job may have been deleted meanwhile. A conflict is a second supervisor
-- under the same name; the stored row stays.
INSERT INTO telemetry_ledgerinterval (machine_id, boot_id, seq, state, cause, job_id, project_id, started_at,
                                      ended_at, mean_in_flight, num_slots)
SELECT %(machine)s::uuid, fresh.boot_id, fresh.seq, fresh.state, fresh.cause, j.id, j.project_id, fresh.started_at,
       fresh.ended_at, fresh.mean_in_flight, CASE WHEN j.id IS NOT NULL THEN fresh.num_slots END
FROM json_to_recordset(%(rows)s::json) AS fresh (
    boot_id uuid, seq bigint, state text, cause text, job_id uuid, started_at timestamptz, ended_at timestamptz,
    mean_in_flight float8, num_slots int)
LEFT JOIN jobs_job j ON j.id = fresh.job_id
ORDER BY fresh.started_at
ON CONFLICT DO NOTHING
