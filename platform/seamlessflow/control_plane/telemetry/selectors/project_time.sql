-- name: seconds
-- Machine-seconds by project: intervals of the ledger within the span, and the time since the last interval of machines
-- whose live phase works for the project. Agents count only on a machine that does nothing else. Locks nothing.
SELECT project_id,
       extract(epoch FROM sum(least(ended_at, %(until)s) - greatest(started_at, %(since)s)))::float8 AS seconds
FROM (
    SELECT i.project_id, i.started_at, i.ended_at FROM telemetry_ledgerinterval i
    WHERE i.ended_at > %(since)s AND i.started_at < %(until)s AND i.project_id = ANY(%(projects)s)
    UNION ALL
    SELECT p.project_id, greatest(h.open_since_at, p.leased_at), h.received_at FROM scheduling_phase p
    JOIN cluster_machineheartbeat h ON h.machine_id = p.machine_id
    WHERE p.state IN ({live}) AND p.project_id = ANY(%(projects)s)
          AND (p.role <> {Role.AGENT} OR NOT EXISTS (
              SELECT FROM scheduling_phase other WHERE other.machine_id = p.machine_id AND other.id <> p.id
                                                       AND other.state IN ({live})))
) spans
WHERE least(ended_at, %(until)s) > greatest(started_at, %(since)s)
GROUP BY project_id
