-- name: sessions
-- Sessions with the version that their group evaluates, as `SessionRow`.
SELECT s.id AS session_id, s.project_id, s.job_id, s.group_id, s.month, s.state, s.key_digest, s.reward, s.reason,
       g.evaluation_version, s.gateway_epoch, s.slot, s.attempt
FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id WHERE s.id = ANY(%(sessions)s)

-- name: earlier
-- Failed attempts of the slot of a session before it, oldest first, as `EarlierAttempt`.
SELECT e.id AS session_id, e.month, e.failure, e.num_turns FROM trajectory_session s
JOIN trajectory_session e ON e.group_id = s.group_id AND e.slot = s.slot AND e.attempt < s.attempt
WHERE s.id = %(session)s AND e.state = {SessionState.FAILED} ORDER BY e.attempt

-- name: opening
-- The session that a request opened under a key, as `Opening`; found by the unique index on project and key.
SELECT id AS session_id, group_id, open_digest AS digest, key_digest, expires_at FROM trajectory_session
WHERE project_id = %(project)s AND open_key = %(key)s

-- name: store_opening
-- The request that opened a session. The unique index refuses a key that is taken.
UPDATE trajectory_session SET open_key = %(key)s, open_digest = %(digest)s,
       expires_at = now() + make_interval(secs => %(ttl_s)s)
WHERE id = %(session)s RETURNING expires_at

-- name: end
-- Outcomes of sessions that are still open.
UPDATE trajectory_session s
SET state = v.state, reward = v.reward, reason = v.reason, is_timeout = v.is_timeout, is_requeued = v.is_requeued,
    failure = v.failure, metrics = s.metrics || v.metrics, closed_at = now()
FROM unnest(%(sessions)s::uuid[], %(states)s::text[], %(rewards)s::float8[], %(reasons)s::text[],
            %(are_timeouts)s::bool[], %(are_requeued)s::bool[], %(failures)s::text[], %(metrics)s::jsonb[])
     AS v (id, state, reward, reason, is_timeout, is_requeued, failure, metrics)
WHERE s.id = v.id AND s.state = {SessionState.OPEN} RETURNING s.id

-- name: note_reward
-- The latest reward of an open session, whose expiry it postpones.
UPDATE trajectory_session SET reward = %(reward)s, expires_at = now() + make_interval(secs => %(ttl_s)s)
WHERE id = %(session)s AND state = {SessionState.OPEN}
