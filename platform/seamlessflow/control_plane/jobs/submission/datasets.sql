-- name: freeze
-- Sessions of other jobs, judged one by one, and the groups of those that are chosen, stored as the dataset of the job.
-- Returns how many are chosen (cause empty) or left out, by cause. One statement sees one snapshot of the tables and
-- locks nothing. The nodes of a session are looked at only if nothing else rules it out.
WITH source AS (
    SELECT j.id, j.spec->'environment'->>'name' AS environment, place
    FROM unnest(%(jobs)s::uuid[]) WITH ORDINALITY AS wanted (id, place)
    JOIN jobs_job j ON j.id = wanted.id AND j.project_id = %(project)s
), judged AS (
    SELECT s.id, s.month, s.group_id, s.slot, s.attempt, s.reward, s.num_sampled_tokens, source.place,
           g.evaluation_version, g.index,
           CASE WHEN s.state = {SessionState.OPEN} THEN 'open'
                WHEN s.state <> {SessionState.CLOSED} OR s.reward IS NULL THEN 'failed'
                WHEN g.evaluation_version IS NOT NULL AND NOT %(with_evaluations)s THEN 'evaluation'
                WHEN cardinality(%(environments)s::text[]) > 0
                     AND source.environment <> ALL(%(environments)s::text[]) THEN 'environment'
                WHEN cardinality(%(domains)s::text[]) > 0
                     AND coalesce(g.task->>'domain', '') <> ALL(%(domains)s::text[]) THEN 'domain'
                WHEN s.reward < %(min_reward)s OR s.reward > %(max_reward)s THEN 'reward' END AS reason
    FROM source JOIN trajectory_session s ON s.job_id = source.id
    JOIN trajectory_group g ON g.id = s.group_id
), sampled AS (
    SELECT judged.*, v.low, v.high FROM judged LEFT JOIN LATERAL (
        SELECT min(n.min_version) AS low, max(n.max_version) AS high FROM trajectory_node n
        WHERE judged.reason IS NULL AND n.month = judged.month AND n.session_id = judged.id AND n.kind = 2
          AND NOT n.is_partial) v ON true
), fitting AS (
    SELECT *, coalesce(reason, CASE
        WHEN high IS NULL OR high < 0 THEN 'empty'
        WHEN low < %(from_version)s OR high > %(to_version)s THEN 'version' END) AS cause
    FROM sampled
), ranked AS (
    SELECT *, CASE WHEN cause IS NULL THEN row_number() OVER (
        PARTITION BY group_id, cause IS NULL ORDER BY reward DESC, num_sampled_tokens, slot, attempt) END AS rank
    FROM fitting
), chosen AS (
    SELECT * FROM ranked WHERE rank <= %(best_per_group)s
), stored AS (
    INSERT INTO trajectory_dataset (project_id, job_id, position, group_id, session_ids)
    SELECT %(project)s, %(job)s,
           row_number() OVER (ORDER BY place, evaluation_version NULLS FIRST, index) - 1, group_id, session_ids
    FROM (SELECT place, evaluation_version, index, group_id, array_agg(id ORDER BY slot, attempt) AS session_ids
          FROM chosen GROUP BY place, evaluation_version, index, group_id) one
    RETURNING 1
)
SELECT cause, count(*) AS num_sessions, 0 AS num_tokens, 0 AS num_groups
FROM ranked WHERE cause IS NOT NULL GROUP BY cause
UNION ALL
SELECT 'rank', count(*), 0, 0 FROM ranked WHERE cause IS NULL AND rank > %(best_per_group)s
UNION ALL
SELECT '', count(*), coalesce(sum(num_sampled_tokens), 0), (SELECT count(*) FROM stored) FROM chosen
