-- name: events_delete
-- Events that are old enough, oldest first, up to a limit. A job at work needs its events; without a job they are the
-- project's, or without a project the installation's.
DELETE FROM common_event WHERE id = ANY(ARRAY(
    SELECT e.id FROM common_event e
    WHERE e.at < %(before)s AND e.project_id IS NOT DISTINCT FROM %(project)s::uuid
      AND NOT EXISTS (SELECT FROM jobs_job j WHERE j.id = e.job_id AND j.state <> ALL(%(ended)s))
    ORDER BY e.at LIMIT %(limit)s))

-- name: names
-- The metrics of a job with the steps and the number of their points.
SELECT name, min(coalesce(first_step, step)) AS first_step, max(step) AS last_step, count(*) AS num_rows
FROM telemetry_metricpoint WHERE job_id = %(job)s GROUP BY name

-- name: roll_up
-- Points of one metric, gathered into the last point of each bucket; the others are deleted. The bound on the addends
-- keeps a sum of the largest numbers finite.
WITH points AS (
    SELECT *, step / %(width)s AS bucket, count(*) OVER (PARTITION BY step / %(width)s) AS num_rows
    FROM telemetry_metricpoint WHERE job_id = %(job)s AND name = %(name)s
), rolled AS (
    SELECT bucket, max(step) AS step, min(coalesce(first_step, step)) AS first_step,
           sum(coalesce(num_points, 1)) AS num_points, min(coalesce(value_min, value)) AS low,
           max(coalesce(value_max, value)) AS high,
           sum(greatest(least(coalesce(value_sum, value), 1e300), -1e300)) AS total
    FROM points WHERE num_rows > 1 GROUP BY bucket
), gone AS (
    DELETE FROM telemetry_metricpoint t USING points p, rolled r
    WHERE t.id = p.id AND p.bucket = r.bucket AND p.step < r.step
)
UPDATE telemetry_metricpoint t
SET first_step = r.first_step, num_points = r.num_points, value_min = r.low, value_max = r.high, value_sum = r.total
FROM rolled r WHERE t.job_id = %(job)s AND t.name = %(name)s AND t.step = r.step
