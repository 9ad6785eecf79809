-- name: rewards
-- Each published batch after one: the mean of the mean rewards of its groups with two percentiles, the mean tokens and
-- turns of their episodes, and the time of publication. Reads the newest batches of each job only. Locks nothing.
SELECT g.job_id, g.batch_number, avg(g.reward_mean) AS mean,
       percentile_cont(%(percentiles)s::float8[]) WITHIN GROUP (ORDER BY g.reward_mean) AS percentiles,
       count(*) AS num_groups, avg(s.tokens) AS tokens, avg(s.turns) AS turns, max(v.published_at) AS published_at
FROM trajectory_group g
JOIN jobs_job j ON j.id = g.job_id
LEFT JOIN policies_policyversion v ON v.job_id = g.job_id AND v.batch_number = g.batch_number
LEFT JOIN LATERAL (
    SELECT avg(num_sampled_tokens) AS tokens, avg(num_turns) AS turns
    FROM trajectory_session WHERE group_id = g.id AND reward IS NOT NULL
) s ON TRUE
WHERE g.job_id = ANY(%(jobs)s) AND g.batch_number > greatest(%(after)s, j.published_batch - %(most)s)
  AND g.batch_number <= j.published_batch
GROUP BY g.job_id, g.batch_number ORDER BY g.batch_number
