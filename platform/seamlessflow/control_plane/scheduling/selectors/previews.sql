-- name: loads
-- The current work of phases: requests at the engines, open episodes, the current batch. Locks nothing.
SELECT p.id, CASE p.role
    WHEN {Role.ROLLOUT} THEN (SELECT h.num_in_flight FROM cluster_machineheartbeat h
                           WHERE h.machine_id = p.machine_id)
    WHEN {Role.AGENT} THEN (SELECT count(*) FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id
                         WHERE g.lease_phase_id = p.id
                               AND g.state IN ({GroupState.OPEN}, {GroupState.EVALUATING})
                               AND s.state = {SessionState.OPEN})
    ELSE (SELECT min(b.number) FROM trajectory_batch b JOIN jobs_job j ON j.id = b.job_id
          WHERE b.job_id = p.job_id AND b.number > j.published_batch) END AS load
FROM scheduling_phase p WHERE p.id = ANY(%(phases)s)
