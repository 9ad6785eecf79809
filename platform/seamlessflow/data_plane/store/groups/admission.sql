-- name: served
-- The last published batch of a job, and the batches that its engines serve. Locks nothing.
SELECT j.published_batch, array(
           SELECT coalesce(v.batch_number, 0) FROM scheduling_phase p
           JOIN policies_policyversion v ON v.job_id = p.job_id AND v.version = p.served_version
           WHERE p.job_id = j.id AND p.role = {Role.ROLLOUT} AND p.state = {PhaseState.ACTIVE}) AS served
FROM jobs_job j WHERE j.id = %(job)s

-- name: counts
-- Training groups of a job, as `GroupCounts`. The caller has locked the job.
SELECT (SELECT count(*) FROM trajectory_group
        WHERE job_id = %(job)s AND state IN ({GroupState.OPEN}, {GroupState.READY})) AS num_waiting,
       (SELECT coalesce(sum(num_groups), 0)::int FROM trajectory_batch
        WHERE job_id = %(job)s AND number > %(by_all)s) AS num_unserved,
       (SELECT coalesce(sum(num_groups), 0)::int FROM trajectory_batch
        WHERE job_id = %(job)s AND number > %(by_any)s) AS num_at_trainer,
       (SELECT count(*) FROM trajectory_group
        WHERE job_id = %(job)s AND state = {GroupState.OPEN}
          AND created_at < clock_timestamp() - make_interval(secs => %(late_after_s)s)) AS num_late,
       (SELECT coalesce(max(index), -1) + 1 FROM trajectory_group
        WHERE job_id = %(job)s AND evaluation_version IS NULL) AS next_index,
       (SELECT coalesce(max(number), 0) FROM trajectory_batch WHERE job_id = %(job)s) AS last_batch

-- name: pace
-- The newest published batches: how long each took, how long it waited for capacity, and the times of its groups. The
-- capacity for a group was made by the last publication before it.
WITH published AS MATERIALIZED (
    SELECT version, batch_number, published_at,
           lag(published_at) OVER (ORDER BY version) AS freed_at
    FROM policies_policyversion
    WHERE job_id = %(job)s AND batch_number > %(oldest)s AND batch_number <= %(newest)s)
SELECT extract(epoch FROM p.published_at - greatest(b.created_at, p.freed_at))::float8 AS step_s,
       extract(epoch FROM greatest(b.created_at - p.freed_at, interval '0'))::float8 AS wait_s,
       took.sojourns_s, took.longest_s
FROM published p
JOIN trajectory_batch b ON b.job_id = %(job)s AND b.number = p.batch_number
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(extract(epoch FROM g.ready_at - capacity.made_at)::float8)
                        FILTER (WHERE capacity.made_at IS NOT NULL), '{}') AS sojourns_s,
           max(extract(epoch FROM g.ready_at - g.created_at))::float8 AS longest_s
    FROM trajectory_group g
    CROSS JOIN LATERAL (
        SELECT coalesce(max(made.published_at) FILTER (WHERE made.published_at <= g.created_at),
                        CASE WHEN %(oldest)s > 0 THEN min(made.published_at) END) AS made_at
        FROM published made) capacity
    WHERE g.job_id = %(job)s AND g.batch_number = b.number AND g.ready_at IS NOT NULL) took
WHERE p.freed_at IS NOT NULL OR b.number = 1
ORDER BY b.number DESC LIMIT %(num)s

-- name: lull_begin
-- A lull, unless one is open already.
INSERT INTO trajectory_lull (id, project_id, job_id, began_at)
SELECT %(id)s, %(project)s, %(job)s, clock_timestamp()
WHERE NOT EXISTS (SELECT FROM trajectory_lull WHERE job_id = %(job)s AND ended_at IS NULL)
