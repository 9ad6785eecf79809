// Decides which phases' logs are read one after another. A child outlives its phases, so the output of one process is
// spread over all phases of its role on its machine. Pure.
import type { PhaseRow } from "../../../live/rows";

/** Phases of one role on one machine, oldest first. */
export interface Lane {
  key: string;
  role: PhaseRow["role"];
  machine: string;
  phases: readonly PhaseRow[];
}

// The last lines of a phase may arrive this long after its end.
const SHIPPING_MS = 5000;
const ORDER: PhaseRow["role"][] = ["train", "rollout", "agent"];

/** Trainers come first, because their output is the most useful. */
export function lanesOf(phases: Iterable<PhaseRow>): Lane[] {
  const found = new Map<string, Lane>();
  for (const phase of phases) {
    const { role, machine } = phase;
    const key = `${role}:${machine}`;
    found.set(key, { key, role, machine, phases: [...(found.get(key)?.phases ?? []), phase] });
  }
  return [...found.values()]
    .map((lane) => ({
      ...lane,
      phases: lane.phases.toSorted((a, b) => a.leased_at - b.leased_at || a.fence - b.fence),
    }))
    .sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role) || a.machine.localeCompare(b.machine));
}

/** The lane of a phase and its neighbours in it. */
export function neighbours(lanes: readonly Lane[], phaseId: string) {
  for (const lane of lanes) {
    const index = lane.phases.findIndex((phase) => phase.id === phaseId);
    if (index >= 0) return { lane, before: lane.phases[index - 1], after: lane.phases[index + 1] };
  }
  return undefined;
}

/** The next phase to read once the current log is complete. `now` is on the server's clock. */
export function following(phases: readonly PhaseRow[], current: PhaseRow, now: number): PhaseRow | undefined {
  const known = phases.find((phase) => phase.id === current.id);
  const next = phases.find((phase) => phase.leased_at > current.leased_at);
  const ended_at = (known ?? current).ended_at;
  if (!next || (known && ended_at === null)) return undefined;
  return ended_at !== null && now - ended_at < SHIPPING_MS ? undefined : next;
}
