-- name: lock
-- Groups that still run. Locks them in the order of their ids, so that bursts of outcomes never deadlock.
SELECT job_id, id, index, task, size, evaluation_version FROM trajectory_group
WHERE id = ANY(%(groups)s) AND state IN ({running}) ORDER BY id FOR UPDATE

-- name: note_rewarded
-- How many outcomes groups have so far.
UPDATE trajectory_group g SET num_rewarded = now.num
FROM unnest(%(groups)s::uuid[], %(nums)s::int[]) AS now (id, num)
WHERE g.id = now.id AND g.num_rewarded <> now.num

-- name: contrast
-- The range of the rewards of a group, and how many groups without contrast no batch has replaced yet.
SELECT min(reward) AS lowest, max(reward) AS highest,
       (SELECT count(*) FROM trajectory_group
        WHERE job_id = %(job)s AND state = {GroupState.DROPPED} AND drop_cause = {DropCause.NO_CONTRAST}
          AND replaced_for IS NULL) AS num_replaced
FROM trajectory_session WHERE group_id = %(group)s AND state = {SessionState.CLOSED}
