-- name: names
-- A step through the unique index per name: a job has dozens of names and may have millions of points.
WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM telemetry_metricpoint WHERE job_id = %(job_id)s
    UNION ALL
    SELECT (SELECT min(name) FROM telemetry_metricpoint WHERE job_id = %(job_id)s AND name > names.name)
    FROM names WHERE name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL

-- name: range
-- The first and the last step of the points of some metrics within given steps, each found by the index.
SELECT min(oldest.step) AS first_step, max(newest.step) AS last_step FROM unnest(%(names)s::text[]) AS asked (name)
CROSS JOIN LATERAL (
    SELECT coalesce(first_step, step) AS step FROM telemetry_metricpoint
    WHERE job_id = %(job_id)s AND name = asked.name AND step >= %(first)s ORDER BY step LIMIT 1
) oldest CROSS JOIN LATERAL (
    SELECT step FROM telemetry_metricpoint
    WHERE job_id = %(job_id)s AND name = asked.name AND step <= %(last)s ORDER BY step DESC LIMIT 1
) newest

-- name: buckets
-- The bound on the addends keeps a sum of the largest numbers finite. The newest value of each bucket is looked up
-- one by one: a join would read every point of the job a second time, where the rows of an answer are few.
WITH buckets AS (
    SELECT name, min(coalesce(first_step, step)) AS first_step, max(step) AS step,
           sum(coalesce(num_points, 1))::bigint AS count,
           min(coalesce(value_min, value)) AS min, max(coalesce(value_max, value)) AS max,
           sum(greatest(least(coalesce(value_sum, value), 1e300), -1e300)) AS total
    FROM telemetry_metricpoint
    WHERE job_id = %(job_id)s AND name = ANY(%(names)s) AND step BETWEEN %(first)s AND %(last)s
    GROUP BY name, step / %(width)s
)
SELECT name, b.first_step, b.step, count, min, max, total / count AS mean, newest.value
FROM buckets b CROSS JOIN LATERAL (
    SELECT value FROM telemetry_metricpoint p
    WHERE p.job_id = %(job_id)s AND p.name = b.name AND p.step = b.step LIMIT 1
) newest ORDER BY name, b.step

-- name: points
-- Stored points by name and step, those after a cursor.
SELECT name, coalesce(first_step, step) AS first_step, step, coalesce(num_points, 1) AS count,
       coalesce(value_min, value) AS min, coalesce(value_max, value) AS max,
       coalesce(value_sum / num_points, value) AS mean, value
FROM telemetry_metricpoint
WHERE job_id = %(job_id)s AND name = ANY(%(names)s) AND step BETWEEN %(first)s AND %(last)s
  AND (name, step) > (%(after_name)s, %(after_step)s)
ORDER BY name, step LIMIT %(limit)s
