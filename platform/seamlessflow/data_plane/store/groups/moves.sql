-- fragment: events
-- Gateways may write events and not read them, so the statements return the moves and not the events.
events AS (
    INSERT INTO common_event
        (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason, author, data, at)
    SELECT project_id, 'group', id, job_id, 'group.state', %(source)s::text, %(target)s::text, %(reason)s::text,
           %(author)s::text, jsonb_build_object('index', index), now()
    FROM moved ORDER BY index)

-- name: move
-- Groups in an expected state, moved on, each with its event.
WITH moved AS (
    UPDATE trajectory_group
    SET state = %(target)s::text, reason = %(reason)s::text, drop_cause = %(cause)s::text,
        finalized_at = coalesce(finalized_at, clock_timestamp())
    WHERE id = ANY(%(groups)s) AND state = %(source)s::text
    RETURNING id, project_id, job_id, index),
{events}
SELECT id FROM moved

-- name: finalize
-- A locked group, moved on with the rewards and versions of its sessions. Returns how many other groups of its job are
-- ready: the count reads rows as they were before the move.
WITH moved AS (
    UPDATE trajectory_group g
    SET state = %(target)s::text, reason = %(reason)s::text, drop_cause = %(cause)s::text,
        finalized_at = coalesce(finalized_at, clock_timestamp()), num_rewarded = %(num)s,
        reward_mean = r.mean, reward_std = r.std, min_version = v.low, max_version = v.high,
        ready_at = CASE WHEN %(target)s::text = {GroupState.READY} THEN now() END
    FROM (SELECT avg(reward) AS mean, stddev_pop(reward) AS std FROM trajectory_session
          WHERE group_id = %(group)s AND state = {SessionState.CLOSED}) r,
         (SELECT min(n.min_version) AS low, max(n.max_version) AS high FROM trajectory_session s
          JOIN trajectory_node n ON n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
          WHERE s.group_id = %(group)s AND s.state = {SessionState.CLOSED}) v
    WHERE g.id = %(group)s AND g.state = %(source)s::text
    RETURNING g.id, g.project_id, g.job_id, g.index),
{events}
SELECT (SELECT count(*) FROM trajectory_group g
        WHERE g.job_id = moved.job_id AND g.state = {GroupState.READY}) AS num_ready
FROM moved
