// Phase rows read over REST, updated with those from the socket. Pure.
import type { Schemas } from "../../../api/client";
import type { PhaseRow } from "../../../live/rows";

type StoredPhase = Schemas["PhaseOutput"];

export function phaseRowOf(stored: StoredPhase): PhaseRow {
  return {
    id: stored.id,
    machine: stored.machine,
    role: stored.role,
    state: stored.state,
    reason: stored.reason,
    fence: stored.fence,
    desired_version: stored.desired_version,
    served_version: stored.served_version,
    engines: stored.engines,
    num_batches: stored.num_batches,
    gang_member: stored.gang_member,
    leased_at: Date.parse(stored.leased_at),
    ended_at: stored.ended_at === null ? null : Date.parse(stored.ended_at),
  };
}

function current(stored: readonly StoredPhase[], live: ReadonlyMap<string | number, PhaseRow>): PhaseRow[] {
  return stored.map((one) => live.get(one.id) ?? phaseRowOf(one));
}

/** The phases from REST and from the socket, each once. The socket's row wins. */
export function withLive(stored: readonly StoredPhase[], live: ReadonlyMap<string | number, PhaseRow>): PhaseRow[] {
  const rows = new Map<string, PhaseRow>(stored.map((one) => [one.id, phaseRowOf(one)]));
  for (const row of live.values()) rows.set(row.id, row);
  return [...rows.values()];
}

/** A page of leases, newest first. The first page starts with all that have not ended, however old they are. */
export function pageOf(
  stored: readonly StoredPhase[],
  live: ReadonlyMap<string | number, PhaseRow>,
  offset: number,
): PhaseRow[] {
  const rows = current(stored, live);
  if (offset > 0) return rows;
  const going = [...live.values()].filter((phase) => phase.ended_at === null);
  const ids = new Set(going.map((phase) => phase.id));
  return phasesInOrder([...going, ...rows.filter((phase) => !ids.has(phase.id))]);
}

/** Those that have not ended first, then the newest. */
export function phasesInOrder(phases: Iterable<PhaseRow>): PhaseRow[] {
  const isOver = (phase: PhaseRow) => Number(phase.ended_at !== null);
  return [...phases].sort((a, b) => isOver(a) - isOver(b) || b.leased_at - a.leased_at);
}
