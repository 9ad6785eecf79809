-- name: running
-- The running evaluation of a job, as `Running`.
SELECT e.version, e.num_tasks, (SELECT count(*) FROM trajectory_group g
                                WHERE g.job_id = e.job_id AND g.evaluation_version = e.version) AS num_begun
FROM trajectory_evaluation e WHERE e.job_id = %(job)s AND e.state = {EvaluationState.RUNNING}

-- name: newest
-- The newest version of a job, and the last that was evaluated.
SELECT j.latest_version, j.published_batch,
       (SELECT max(version) FROM trajectory_evaluation e WHERE e.job_id = j.id) AS last_evaluated
FROM jobs_job j WHERE j.id = %(job)s

-- name: insert
INSERT INTO trajectory_evaluation (id, project_id, job_id, version, state, num_tasks, samples_per_task, pass_at_k,
                                   started_at)
VALUES (%(id)s, %(project)s, %(job)s, %(version)s, {EvaluationState.RUNNING}, %(num_tasks)s, %(samples_per_task)s,
        '{}', now())

-- name: lock
-- A running evaluation. Locks it: if two groups end at the same time, the later one sees both.
SELECT project_id, num_tasks FROM trajectory_evaluation
WHERE job_id = %(job)s AND version = %(version)s AND state = {EvaluationState.RUNNING} FOR UPDATE

-- name: progress
-- How many groups of an evaluation are evaluated, and the versions that sampled them.
SELECT count(*) AS num_evaluated, min(min_version) AS min_version, max(max_version) AS max_version
FROM trajectory_group
WHERE job_id = %(job)s AND evaluation_version = %(version)s AND state = {GroupState.EVALUATED}

-- name: finish
UPDATE trajectory_evaluation SET state = {EvaluationState.FINISHED}, ended_at = now(), num_rewarded = %(num_rewarded)s,
       num_sampled_tokens = %(num_sampled_tokens)s, min_version = %(min_version)s, max_version = %(max_version)s,
       reward_mean = %(reward_mean)s, pass_at_1 = %(pass_at_1)s, pass_at_k = %(pass_at_k)s, version = %(measured)s
WHERE job_id = %(job)s AND version = %(version)s

-- name: rename_groups
UPDATE trajectory_group SET evaluation_version = %(measured)s
WHERE job_id = %(job)s AND evaluation_version = %(version)s

-- name: cancel
-- Cancels the running evaluations of jobs that are over.
UPDATE trajectory_evaluation e SET state = {EvaluationState.CANCELLED}, ended_at = now() FROM jobs_job j
WHERE e.state = {EvaluationState.RUNNING} AND j.id = e.job_id AND j.state IN ({over})
RETURNING e.project_id, e.job_id, e.version, j.state AS job_state

-- name: figures
-- By task: how many sessions have an outcome, how many passed, and their means and sums.
SELECT count(*) FILTER (WHERE s.state = {SessionState.CLOSED} AND s.reward IS NOT NULL) AS num_rewarded,
       count(*) FILTER (WHERE s.state = {SessionState.CLOSED} AND s.reward >= %(correct)s) AS num_passed,
       avg(s.reward) FILTER (WHERE s.state = {SessionState.CLOSED}) AS reward_mean,
       sum(s.num_sampled_tokens) FILTER (WHERE s.state = {SessionState.CLOSED} AND s.reward IS NOT NULL)
           AS num_rewarded_tokens,
       count(*) FILTER (WHERE s.state = {SessionState.CLOSED} AND s.is_timeout) AS num_timeouts,
       sum(s.num_sampled_tokens) AS num_tokens,
       (SELECT extract(epoch FROM now() - e.started_at)::float FROM trajectory_evaluation e
        WHERE e.job_id = %(job)s AND e.version = %(version)s) AS duration_s
FROM trajectory_group g LEFT JOIN trajectory_session s ON s.group_id = g.id
WHERE g.job_id = %(job)s AND g.evaluation_version = %(version)s GROUP BY g.id

-- name: metrics
INSERT INTO telemetry_metricpoint (project_id, job_id, name, step, value, at)
SELECT %(project)s, %(job)s, name, %(step)s, value, now()
FROM unnest(%(names)s::text[], %(values)s::float8[]) AS point (name, value)
ON CONFLICT (job_id, name, step) DO UPDATE SET value = excluded.value
