-- fragment: ttl_s
-- The time to live of a session; 900 s for jobs whose stored spec has none.
coalesce((j.spec->'environment'->>'session_ttl_s')::float8, 900)

-- name: expiries
-- Sessions that were active: their states, and whether their expiry is due to be postponed.
SELECT s.id, s.state, s.expires_at < now() + make_interval(secs => 0.9 * t.ttl_s) AS is_due
FROM trajectory_session s JOIN unnest(%(sessions)s::uuid[], %(ttls_s)s::float8[]) AS t (id, ttl_s) ON t.id = s.id

-- name: renew
-- Postpones the expiry of open sessions. A session to which a turn is being written is left out: a statement that
-- waited for it could deadlock with the writer of turns.
UPDATE trajectory_session s SET expires_at = now() + make_interval(secs => t.ttl_s)
FROM unnest(%(sessions)s::uuid[], %(ttls_s)s::float8[]) AS t (id, ttl_s)
WHERE t.id = s.id AND s.id IN (
    SELECT id FROM trajectory_session WHERE id = ANY(%(sessions)s) AND state = {SessionState.OPEN}
    FOR UPDATE SKIP LOCKED)
RETURNING s.id

-- name: silent
-- Open sessions that have expired, as `SilentSession`; at most 500 for a poll. Locks nothing.
SELECT s.id AS session_id, s.job_id, s.group_id FROM trajectory_session s JOIN jobs_job j ON j.id = s.job_id
WHERE s.state = {SessionState.OPEN} AND s.expires_at < now() AND least({ttl_s}, %(most_s)s) <= %(listened_s)s
ORDER BY s.id LIMIT 500

-- name: lock
-- Those that are still expired. Locks them, and leaves out a session to which a turn is being written.
SELECT id, reward FROM trajectory_session
WHERE id = ANY(%(sessions)s) AND state = {SessionState.OPEN} AND expires_at < now()
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: given_up
-- Open groups of external agents in which no session is open or has ended recently; at most 500 for a poll.
SELECT g.id, g.job_id FROM jobs_job j
CROSS JOIN LATERAL (SELECT {ttl_s} AS ttl_s) t
JOIN trajectory_group g ON g.job_id = j.id AND g.state = {GroupState.OPEN}
WHERE j.state NOT IN ({over}) AND j.spec->'environment'->>'name' = 'external'
  AND least(t.ttl_s, %(most_s)s) <= %(listened_s)s
  AND NOT EXISTS (
      SELECT FROM trajectory_session s
      WHERE s.group_id = g.id AND (s.state = {SessionState.OPEN}
            OR s.closed_at > now() - make_interval(secs => greatest(t.ttl_s, %(least_s)s))))
ORDER BY g.id LIMIT 500
