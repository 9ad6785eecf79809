-- name: store_reasons
-- Why jobs wait, and why those that go on are in their state, for many jobs at once. Rows are locked in one order,
-- because a stand-by that takes over may write the same ones at the same time. Other states keep the reason of the
-- move into them, such as what a pause is for.
WITH fresh AS (
    SELECT j.id, new.* FROM json_to_recordset(%(rows)s::json) AS new (job uuid, waiting text, state text)
    JOIN jobs_job j ON j.id = new.job AND j.state NOT IN ({over})
    ORDER BY j.id FOR NO KEY UPDATE OF j)
UPDATE jobs_job j SET waiting_reason = fresh.waiting,
    state_reason = CASE WHEN j.state IN ({JobState.QUEUED}, {JobState.STARTING}, {JobState.RUNNING})
                   THEN fresh.state ELSE j.state_reason END
FROM fresh WHERE j.id = fresh.id

-- name: store_owed
-- What jobs are owed. Rows are locked in one order, as above.
WITH fresh AS (
    SELECT j.id, new.owed FROM json_to_recordset(%(rows)s::json) AS new (id uuid, owed smallint)
    JOIN jobs_job j ON j.id = new.id
    ORDER BY j.id FOR NO KEY UPDATE OF j)
UPDATE jobs_job j SET owed = fresh.owed FROM fresh WHERE j.id = fresh.id
