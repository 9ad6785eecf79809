-- name: leasable
-- Running groups that a phase has or that no live phase has, as `OpenGroup`. Locks them; a group that another
-- transaction locks is left out.
SELECT g.id AS group_id, g.index, g.task, g.size, g.evaluation_version,
       g.lease_phase_id IS DISTINCT FROM %(phase)s OR g.lease_fence IS DISTINCT FROM %(fence)s AS is_abandoned,
       (SELECT count(*) FROM trajectory_session s
        WHERE s.group_id = g.id AND s.state <> {SessionState.FAILED}) < g.size AS has_free_slots
FROM trajectory_group g
WHERE g.job_id = %(job)s AND g.state = %(state)s AND g.external_key = ''
  AND ((g.lease_phase_id = %(phase)s AND g.lease_fence = %(fence)s) OR g.lease_expires_at IS NULL
       OR g.lease_expires_at < now()
       OR NOT EXISTS (SELECT 1 FROM scheduling_phase p WHERE p.id = g.lease_phase_id
                      AND p.fence = g.lease_fence AND p.state IN ({live})))
ORDER BY g.index FOR UPDATE OF g SKIP LOCKED

-- name: open_of_key
-- The newest open group that external agents opened under a key. Locks it.
SELECT id AS group_id, index, task, size FROM trajectory_group
WHERE job_id = %(job)s AND state = {GroupState.OPEN} AND external_key = %(key)s ORDER BY index DESC LIMIT 1 FOR UPDATE

-- name: insert
-- A group, leased to a phase or to none.
INSERT INTO trajectory_group (id, project_id, job_id, index, evaluation_version, external_key, task_index,
    task, size, state, reason, num_rewarded, created_at, lease_phase_id, lease_fence, lease_expires_at)
VALUES (%(id)s, %(project)s, %(job)s, %(index)s, %(evaluation_version)s, %(external_key)s, %(task_index)s,
        %(task)s, %(size)s, %(state)s, '', 0, now(), %(phase)s::uuid, %(fence)s::bigint,
        CASE WHEN %(fence)s::bigint IS NOT NULL THEN now() + make_interval(secs => %(lease_s)s) END)

-- name: lease
-- Leases of groups to a phase, begun or renewed.
UPDATE trajectory_group SET lease_phase_id = %(phase)s, lease_fence = %(fence)s,
       lease_expires_at = now() + make_interval(secs => %(lease_s)s) WHERE id = ANY(%(groups)s)

-- name: renew
-- Leases of groups that run. Locks rows in the same order as every statement that locks several groups.
UPDATE trajectory_group SET lease_expires_at = now() + make_interval(secs => %(lease_s)s)
WHERE id IN (SELECT id FROM trajectory_group WHERE id = ANY(%(groups)s) AND state IN ({running})
             AND lease_phase_id IS NOT NULL ORDER BY id FOR UPDATE)

-- name: abandon
-- Fails the open sessions of a group whose runner is gone; they count as requeued if its phase was drained.
UPDATE trajectory_session SET state = {SessionState.FAILED}, reason = 'its runner is gone',
       failure = {FailureKind.MACHINE}, closed_at = now(),
       is_requeued = EXISTS (SELECT 1 FROM trajectory_group g JOIN scheduling_phase p
                                ON p.id = g.lease_phase_id AND p.fence = g.lease_fence
                                WHERE g.id = %(group)s AND p.state = {PhaseState.ENDED})
WHERE group_id = %(group)s AND state = {SessionState.OPEN} RETURNING id

-- name: unknown
-- Open sessions of groups that their runner does not have, as `UnheldSession`, in order of their slots.
SELECT id AS session_id, group_id, slot, attempt, key_digest, num_turns,
       extract(epoch FROM now() - opened_at)::float8 AS age_s
FROM trajectory_session
WHERE group_id = ANY(%(groups)s) AND state = {SessionState.OPEN} AND NOT id = ANY(%(known)s) ORDER BY slot

-- name: recall
-- Fails open sessions that their runner has given up without a report.
UPDATE trajectory_session SET state = {SessionState.FAILED}, reason = 'its runner gave it up',
       failure = {FailureKind.MACHINE}, closed_at = now(), is_requeued = true
WHERE id = ANY(%(sessions)s) AND state = {SessionState.OPEN} RETURNING id

-- name: slots
-- The newest attempt of each slot that ran, as `Slot`.
SELECT group_id, slot, max(attempt) AS attempt, (array_agg(state ORDER BY attempt DESC))[1] AS state,
       count(*) FILTER (WHERE state = {SessionState.FAILED} AND NOT is_requeued
                              AND failure NOT IN ({uncharged})) AS num_failures,
       bool_or(state = {SessionState.FAILED} AND is_timeout) AS is_masked
FROM trajectory_session WHERE group_id = ANY(%(groups)s) GROUP BY group_id, slot

-- name: sessions_insert
-- Open attempts of several slots of a group.
INSERT INTO trajectory_session (id, project_id, job_id, group_id, month, slot, attempt, state, reason, key_digest,
    is_timeout, is_requeued, failure, is_late, metrics, num_turns, num_sampled_tokens, opened_at, gateway_epoch)
SELECT new.id, %(project)s, %(job)s, %(group)s, %(month)s, new.slot, new.attempt, {SessionState.OPEN}, '', new.digest,
       false, false, '', false, '{}', 0, 0, %(now)s, %(epoch)s
FROM unnest(%(ids)s::uuid[], %(slots)s::int[], %(attempts)s::int[], %(digests)s::bytea[])
     AS new (id, slot, attempt, digest)
