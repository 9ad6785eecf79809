-- name: waste
-- Dropped groups of a job that no batch has counted yet, with the tokens that their sessions sampled.
SELECT g.id, g.drop_cause, coalesce(sum(s.num_sampled_tokens), 0)::bigint AS num_tokens, g.reward_mean
FROM trajectory_group g LEFT JOIN trajectory_session s ON s.group_id = g.id
WHERE g.job_id = %(job)s AND g.state = {GroupState.DROPPED} AND g.replaced_for IS NULL GROUP BY g.id

-- name: costs
-- How long groups took from admission until they were ready, and how often their turns changed engines.
SELECT avg(took_s)::float AS group_s_mean, max(took_s)::float AS group_s_max,
       sum(handovers)::float AS num_handovers, sum(continuations)::float AS num_continuations
FROM (SELECT extract(epoch FROM g.ready_at - g.created_at) AS took_s, sum(n.num_handovers) AS handovers,
             sum(n.num_continuations) AS continuations
      FROM trajectory_group g JOIN trajectory_session s ON s.group_id = g.id AND s.state = {SessionState.CLOSED}
      JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
      WHERE g.id = ANY(%(groups)s) GROUP BY g.id) took

-- name: failed
-- Failed attempts of groups, as `FailedSession`: whether the session with the outcome of the slot has as many answers.
SELECT f.failure AS kind, f.num_sampled_tokens, %(are_resumed)s AND f.num_turns <= (
           SELECT count(DISTINCT n.turn_id) FROM trajectory_session c
           JOIN trajectory_node n ON n.month = c.month AND n.session_id = c.id AND n.flags ? %(flag)s
           WHERE c.group_id = f.group_id AND c.slot = f.slot AND c.state = {SessionState.CLOSED}) AS is_resumed
FROM trajectory_session f WHERE f.group_id = ANY(%(groups)s) AND f.state = {SessionState.FAILED}

-- name: oldest
-- The oldest version that sampled a token in the open groups of a job.
SELECT min(n.min_version) AS min_version FROM trajectory_session s
JOIN trajectory_group g ON g.id = s.group_id AND g.state = {GroupState.OPEN}
JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
WHERE g.job_id = %(job)s AND s.state IN ({SessionState.OPEN}, {SessionState.CLOSED})
