-- name: published_batches
-- How many versions each batch is in.
SELECT batch_number, count(*) AS num_versions FROM policies_policyversion
WHERE job_id = %(job)s AND batch_number IS NOT NULL GROUP BY batch_number

-- name: stored_batches
SELECT count(*) AS num_batches, coalesce(max(number), 0) AS newest, count(DISTINCT number) AS num_numbers,
       count(*) FILTER (WHERE number < %(published)s AND state = {BatchState.LEASED}) AS published_but_leased
FROM trajectory_batch WHERE job_id = %(job)s

-- name: groups_in_one_batch
-- Batches of recorded trajectories have no groups of their own.
SELECT (SELECT count(*) FROM trajectory_group
        WHERE job_id = %(job)s AND (state = {GroupState.BATCHED}) <> (batch_number IS NOT NULL))
           AS groups_with_wrong_state,
       (SELECT count(*) FROM trajectory_batch b
        WHERE b.job_id = %(job)s
          AND b.num_groups <> (SELECT count(*) FROM trajectory_group g
                               WHERE g.job_id = b.job_id AND g.batch_number = b.number)
          AND NOT EXISTS (SELECT 1 FROM trajectory_dataset d WHERE d.job_id = b.job_id))
           AS batches_with_other_groups

-- name: batched_sessions_closed
SELECT count(*) AS open FROM trajectory_session s JOIN trajectory_group g ON g.id = s.group_id
WHERE g.job_id = %(job)s AND g.state = {GroupState.BATCHED} AND s.state = {SessionState.OPEN}

-- name: trees_are_whole
SELECT (SELECT count(*) FROM (SELECT session_id FROM trajectory_node WHERE job_id = %(job)s GROUP BY session_id
                              HAVING min(node_index) <> 0 OR max(node_index) <> count(*) - 1) s)
           AS sessions_with_gaps,
       (SELECT count(*) FROM trajectory_node n
        WHERE n.job_id = %(job)s AND (
            n.parent_index >= n.node_index OR (n.parent_index IS NULL) <> (n.kind = 0)
            OR (n.parent_index IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM trajectory_node p
                WHERE p.month = n.month AND p.session_id = n.session_id AND p.node_index = n.parent_index))))
           AS nodes_without_parent

-- name: version_spans
-- Spans are pairs of a first token and a version, flat; version -1 is unknown.
SELECT count(*) AS sampled_nodes,
       count(*) FILTER (WHERE NOT coalesce(
           cardinality(version_spans) >= 2 AND cardinality(version_spans) %% 2 = 0 AND version_spans[1] = 0
           AND version_spans[cardinality(version_spans) - 1] < num_tokens
           AND NOT EXISTS (SELECT 1 FROM generate_series(3, cardinality(version_spans), 2) i
                           WHERE version_spans[i] <= version_spans[i - 2]), false)) AS wrong,
       count(*) FILTER (WHERE EXISTS (SELECT 1 FROM generate_series(2, cardinality(version_spans), 2) i
                                      WHERE version_spans[i] < 0)) AS with_unknown_version
FROM trajectory_node WHERE job_id = %(job)s AND kind = 2 AND num_tokens > 0

-- name: headers
-- The first bytes of the frames of sampled nodes, which contain their sizes.
SELECT num_tokens, substring(token_ids FOR %(num_bytes)s::int) AS token_ids,
       substring(logprobs FOR %(num_bytes)s::int) AS logprobs
FROM trajectory_node WHERE job_id = %(job)s AND kind = 2

-- name: turns
SELECT count(*) AS sessions, coalesce(sum(t.turns), 0)::bigint AS turns,
       count(*) FILTER (WHERE s.num_turns <> coalesce(t.turns, 0)) AS sessions_miscounted,
       (SELECT count(*) FROM (
            SELECT turn_id FROM trajectory_node WHERE job_id = %(job)s AND kind = 2 AND NOT is_partial
            GROUP BY turn_id HAVING count(DISTINCT session_id) > 1 OR count(DISTINCT parent_index) > 1) spread
       ) AS turns_spread
FROM trajectory_session s
LEFT JOIN (SELECT session_id, count(DISTINCT turn_id) AS turns FROM trajectory_node
           WHERE job_id = %(job)s AND kind = 2 AND NOT is_partial GROUP BY session_id) t ON t.session_id = s.id
WHERE s.job_id = %(job)s

-- name: ledgers
-- By machine that the job used: its intervals in the time of the job, and those that do not follow the one before.
SELECT m.name, count(*) AS intervals,
       count(*) FILTER (WHERE abs(i.gap_s) > %(tolerance_s)s) AS breaks,
       extract(epoch FROM max(i.ended_at) - min(i.started_at))::float8 AS wall_s,
       extract(epoch FROM sum(i.ended_at - i.started_at))::float8 AS sum_s
FROM (SELECT machine_id, started_at, ended_at, extract(epoch FROM started_at - lag(ended_at)
             OVER (PARTITION BY machine_id ORDER BY started_at)) AS gap_s
      FROM telemetry_ledgerinterval
      WHERE machine_id IN (SELECT machine_id FROM scheduling_phase WHERE job_id = %(job)s)
        AND ended_at >= %(begin_at)s AND started_at <= %(end_at)s) i
JOIN cluster_machine m ON m.id = i.machine_id GROUP BY m.name ORDER BY m.name

-- name: live_phases
SELECT count(*) AS live FROM scheduling_phase WHERE job_id = %(job)s AND state IN ({live})

-- name: one_live_phase_per_machine
SELECT count(*) AS overlaps FROM scheduling_phase a
JOIN scheduling_phase b ON a.machine_id = b.machine_id AND a.fence < b.fence
WHERE a.job_id = %(job)s AND (a.ended_at IS NULL OR b.leased_at < a.ended_at)
  AND (a.role = {Role.AGENT}) = (b.role = {Role.AGENT}) AND (a.role <> {Role.AGENT} OR a.job_id = b.job_id)

-- name: staleness
SELECT max(policy_version - min_version) AS largest,
       count(*) FILTER (WHERE policy_version - min_version > %(bound)s) AS beyond
FROM trajectory_batch WHERE job_id = %(job)s AND min_version IS NOT NULL

-- name: held_out_never_trained
SELECT (SELECT count(*) FROM trajectory_group
        WHERE job_id = %(job)s
          AND ((evaluation_version IS NOT NULL) <> (state IN ({GroupState.EVALUATING}, {GroupState.EVALUATED}))
               OR evaluation_version IS NOT NULL AND batch_number IS NOT NULL)) AS groups_with_wrong_state,
       (SELECT count(*) FROM trajectory_evaluation e
        WHERE e.job_id = %(job)s AND e.state = {EvaluationState.FINISHED}
          AND e.num_tasks <> (SELECT count(*) FROM trajectory_group g
                              WHERE g.job_id = e.job_id AND g.evaluation_version = e.version
                                AND g.state = {GroupState.EVALUATED})) AS finished_without_all_tasks
