-- fragment: was_long
p.ended_at - p.active_at >= make_interval(secs => {proven_s})

-- name: failures
-- Phases of unfinished jobs whose work failed lately, and whether machine or job have worked well since. Locks nothing;
-- reads the partial index of failures, so its cost depends on their number and not on the fleet.
SELECT f.machine_id, f.job_id, f.role, f.fence, f.reason,
       extract(epoch FROM statement_timestamp() - f.ended_at)::float8 AS age_s,
       EXISTS (SELECT FROM scheduling_phase p
               WHERE p.machine_id = f.machine_id AND p.fence > f.fence
                     AND ((p.state = {PhaseState.ENDED} AND p.active_at IS NOT NULL) OR {was_long})
                     AND (p.role = {Role.AGENT}) = (f.role = {Role.AGENT})) AS machine_works,
       EXISTS (SELECT FROM scheduling_phase p
               WHERE p.job_id = f.job_id AND p.role = f.role AND p.leased_at > f.leased_at
                     AND p.machine_id <> f.machine_id AND {was_long}) AS job_works
FROM scheduling_phase f
JOIN jobs_job j ON j.id = f.job_id AND j.state NOT IN ({over})
WHERE f.failure_cause = {FailureCause.WORK}
      AND f.ended_at > statement_timestamp() - make_interval(secs => {remembered_s})
