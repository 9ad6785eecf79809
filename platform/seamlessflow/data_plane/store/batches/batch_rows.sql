-- name: apply
-- Leased batches that the trainer has applied.
UPDATE trajectory_batch SET state = {BatchState.APPLIED}, applied_at = now()
WHERE job_id = %(job)s AND number <= %(applied)s AND state = {BatchState.LEASED}

-- name: forget
-- Applied batches that a durable checkpoint contains lose their bytes.
UPDATE trajectory_batch SET state = {BatchState.FORGOTTEN}, payload = NULL
WHERE job_id = %(job)s AND number <= %(durable)s AND number <= %(applied)s AND state = {BatchState.APPLIED}

-- name: apply_published
-- Leased batches of every job that are in published weights.
UPDATE trajectory_batch b SET state = {BatchState.APPLIED}, applied_at = now() FROM jobs_job j
WHERE b.state = {BatchState.LEASED} AND j.id = b.job_id AND b.number <= j.published_batch

-- name: lease
-- A batch that still has its bytes, leased to a phase.
UPDATE trajectory_batch SET lease_phase_id = %(phase)s, lease_fence = %(fence)s,
       lease_expires_at = now() + make_interval(secs => %(lease_s)s)
WHERE job_id = %(job)s AND number = %(number)s AND payload IS NOT NULL RETURNING payload

-- name: ready
-- Ready groups, oldest first, as `ReadyGroup`. Locks them.
SELECT id AS group_id, min_version, max_version FROM trajectory_group
WHERE job_id = %(job)s AND state = {GroupState.READY} ORDER BY index FOR UPDATE

-- name: may_be_ready
-- Whether a batch exists or enough groups are ready for it. Locks nothing.
SELECT EXISTS (SELECT FROM trajectory_batch WHERE job_id = %(job)s AND number = %(number)s)
       OR (SELECT count(*) FROM trajectory_group
           WHERE job_id = %(job)s AND state = {GroupState.READY}) >= %(num_groups)s AS may_be_ready

-- name: fresh
-- By group, the number of sessions with an outcome and without tokens of a version older than allowed.
SELECT s.group_id, count(*) FILTER (WHERE NOT EXISTS (
           SELECT FROM trajectory_node n WHERE n.month = s.month AND n.session_id = s.id AND NOT n.is_partial
                                           AND n.min_version < %(oldest)s)) AS num_fresh
FROM trajectory_session s
WHERE s.group_id = ANY(%(groups)s) AND s.state = {SessionState.CLOSED} AND s.reward IS NOT NULL GROUP BY s.group_id

-- name: insert
-- A batch, leased to the phase that asked for it.
INSERT INTO trajectory_batch (id, project_id, job_id, number, state, payload, payload_sha256, policy_version,
    num_groups, num_samples, num_tokens, num_trained_tokens, min_version, lease_phase_id, lease_fence,
    lease_expires_at, created_at)
VALUES (%(id)s, %(project)s, %(job)s, %(number)s, {BatchState.LEASED}, %(payload)s, %(sha256)s, %(policy_version)s,
        %(num_groups)s, %(num_samples)s, %(num_tokens)s, %(num_trained)s, %(min_version)s, %(phase)s, %(fence)s,
        now() + make_interval(secs => %(lease_s)s), now())

-- name: finished
-- Sessions of groups with an outcome, all or the chosen ones, in an order that never changes.
SELECT s.group_id, s.month, s.id, s.reward, coalesce(g.task->>'domain', '') AS domain, s.num_turns,
       s.num_sampled_tokens, s.is_timeout
FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id
WHERE s.group_id = ANY(%(groups)s) AND s.state = {SessionState.CLOSED} AND s.reward IS NOT NULL
  AND (%(chosen)s::uuid[] IS NULL OR s.id = ANY(%(chosen)s::uuid[]))
ORDER BY s.group_id, s.slot, s.attempt

-- name: nodes
-- Nodes of sessions as training needs them: no messages, no digests. Reads the partitions of their months only.
SELECT n.session_id, n.node_index, n.parent_index, n.kind, coalesce(n.token_ids, p.token_ids) AS token_ids, n.logprobs,
       n.version_spans, n.loss_mask, n.is_partial, coalesce(n.finish_reason = 'length', false) AS is_cut,
       n.flags->%(flag)s::text AS guide
FROM trajectory_node n LEFT JOIN trajectory_prompt p ON p.id = n.prompt_id
WHERE n.month = ANY(%(months)s) AND n.session_id = ANY(%(sessions)s) ORDER BY n.session_id, n.node_index
