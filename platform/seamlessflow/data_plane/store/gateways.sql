-- name: join
-- A gateway that begins an epoch.
INSERT INTO trajectory_gateway (name, public_url, seen_at, demands)
VALUES (%(name)s, %(public_url)s, clock_timestamp(), '{}') RETURNING epoch

-- name: sign
-- A sign of life, if the epoch has not ended.
UPDATE trajectory_gateway SET seen_at = clock_timestamp(), demands = %(demands)s, turns = %(turns)s,
       paces = coalesce(%(paces)s, paces)
WHERE epoch = %(epoch)s

-- name: read_again
-- Tokens that other engines had to read again, added to the phases of the turns.
UPDATE scheduling_phase p SET num_read_again_tokens = num_read_again_tokens + fresh.num_tokens
FROM unnest(%(phases)s::uuid[], %(tokens)s::bigint[]) AS fresh (id, num_tokens) WHERE p.id = fresh.id

-- name: members
-- Gateways, in order of their epochs.
SELECT epoch, name, public_url, demands,
       seen_at < clock_timestamp() - make_interval(secs => %(lease_s)s) AS is_silent
FROM trajectory_gateway ORDER BY epoch

-- name: moment
-- The name of the gateway of an epoch, if it has not ended, with the time.
SELECT clock_timestamp() AS now, name FROM trajectory_gateway WHERE epoch = %(epoch)s

-- name: holder
-- The epoch that a session names and the gateway behind it, as `Holder`.
SELECT s.group_id, s.key_digest, s.gateway_epoch AS epoch, g.name FROM trajectory_session s
LEFT JOIN trajectory_gateway g ON g.epoch = s.gateway_epoch WHERE s.id = %(session)s

-- name: claim
-- Makes an epoch the one that may write a session, in place of one that has ended. Waits for a turn that is being
-- written, whose transaction locks the session.
UPDATE trajectory_session s SET gateway_epoch = %(epoch)s
WHERE s.id = %(session)s AND s.gateway_epoch IS NOT DISTINCT FROM %(ended)s
  AND NOT EXISTS (SELECT 1 FROM trajectory_gateway g WHERE g.epoch = %(ended)s)
  AND EXISTS (SELECT 1 FROM trajectory_gateway g WHERE g.epoch = %(epoch)s)

-- name: stop_timers
-- Stops the timers that ran when a gateway was last seen.
UPDATE trajectory_session_hold
SET held_s = held_s + greatest(extract(epoch FROM %(began)s - held_since), 0), held_since = NULL
WHERE gateway = %(name)s AND held_since IS NOT NULL

-- name: count_absence
-- Adds the time for which a gateway was away to its open sessions, in the order of their ids.
INSERT INTO trajectory_session_hold AS h (session_id, project_id, gateway, held_s, away_s)
SELECT s.id, s.project_id, %(name)s, 0,
       greatest(extract(epoch FROM %(ended)s - greatest(%(began)s, s.opened_at)), 0)
FROM trajectory_session s WHERE s.gateway_epoch = %(epoch)s AND s.state = {SessionState.OPEN}
ORDER BY s.id
ON CONFLICT (session_id) DO UPDATE SET away_s = h.away_s + excluded.away_s
