// Phase rows read over REST, updated with those from the socket. Pure.
import type { Schemas } from "../../../api/client";
import type { PhaseRow } from "../../../live/rows";

type Told = Schemas["PhaseOutput"];

export function phaseRowOf(told: Told): PhaseRow {
  return {
    id: told.id,
    machine: told.machine,
    role: told.role,
    state: told.state,
    reason: told.reason,
    fence: told.fence,
    desired_version: told.desired_version,
    served_version: told.served_version,
    engines: told.engines,
    num_batches: told.num_batches,
    gang_member: told.gang_member,
    leased_at: Date.parse(told.leased_at),
    ended_at: told.ended_at === null ? null : Date.parse(told.ended_at),
  };
}

function current(told: readonly Told[], live: ReadonlyMap<string | number, PhaseRow>): PhaseRow[] {
  return told.map((one) => live.get(one.id) ?? phaseRowOf(one));
}

/** The phases from REST and from the socket, each once. The socket's row wins. */
export function withLive(told: readonly Told[], live: ReadonlyMap<string | number, PhaseRow>): PhaseRow[] {
  const rows = new Map<string, PhaseRow>(told.map((one) => [one.id, phaseRowOf(one)]));
  for (const row of live.values()) rows.set(row.id, row);
  return [...rows.values()];
}

/** A page of leases, newest first. The first page starts with all that have not ended, however old they are. */
export function pageOf(
  told: readonly Told[],
  live: ReadonlyMap<string | number, PhaseRow>,
  offset: number,
): PhaseRow[] {
  const rows = current(told, live);
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
