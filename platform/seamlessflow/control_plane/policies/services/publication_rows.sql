-- name: store
-- A version with everything that follows from it. The caller has locked the row of the job; phases are changed only
-- while they may still serve. Gateways and scheduler are notified when the transaction commits.
WITH published AS (
    INSERT INTO policies_policyversion (id, project_id, job_id, phase_id, train_fence, version, parent_version,
        optimizer_step, batch_number, uri, manifest_sha256, num_bytes, checkpoint_uri, is_pinned, published_at)
    VALUES (%(id)s, %(project_id)s, %(job_id)s, %(phase_id)s, %(fence)s::bigint, %(version)s::bigint,
            %(parent_version)s::bigint, %(optimizer_step)s::bigint, %(batch_number)s::bigint, %(uri)s::text,
            %(manifest_sha256)s::text, %(num_bytes)s::bigint, %(checkpoint_uri)s::text, false,
            %(now)s::timestamptz)
    RETURNING id, project_id, job_id, version, batch_number, optimizer_step, published_at),
counted AS (
    UPDATE jobs_job j SET latest_version = v.version, published_batch = v.batch_number, num_failures = 0
    FROM published v WHERE j.id = v.job_id),
wanted AS (
    UPDATE scheduling_phase p SET desired_version = v.version
    FROM published v
    WHERE p.job_id = v.job_id AND p.role = {Role.ROLLOUT}
          AND p.state IN ({PhaseState.LEASED}, {PhaseState.STARTING}, {PhaseState.ACTIVE})
          AND p.desired_version < v.version),
recorded AS (
    INSERT INTO common_event (project_id, subject_type, subject_id, job_id, kind, from_state, to_state, reason,
                              author, data, at)
    SELECT project_id, {SubjectType.VERSION}, id, job_id, 'version.published', '', '', '', %(author)s::text,
           jsonb_build_object('version', version, 'batch_number', batch_number, 'optimizer_step', optimizer_step),
           published_at
    FROM published)
SELECT pg_notify({engines_channel}, job_id::text),
       pg_notify({scheduler_channel}, 'version ' || version || ' of job ' || job_id || ' was published')
FROM published
