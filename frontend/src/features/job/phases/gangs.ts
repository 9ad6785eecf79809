// Says how a train phase relates to the other machines of its gang. Pure: rows in, a few words out.
import type { PhaseRow } from "../../../live/rows";

/** "leads beta, delta" or "led by alpha"; empty for a phase of one machine. Members of a gang have one fence. */
export function gangWords(phase: PhaseRow, phases: Iterable<PhaseRow>): string {
  if (phase.gang_member === null) return "";
  const fellows = [...new Map([...phases].map((one) => [one.id, one])).values()]
    .filter((other) => other.gang_member !== null && other.fence === phase.fence && other.id !== phase.id)
    .sort((a, b) => (a.gang_member ?? 0) - (b.gang_member ?? 0));
  if (phase.gang_member === 0) return `leads ${fellows.map((other) => other.machine).join(", ") || "others"}`;
  const leader = fellows.find((other) => other.gang_member === 0);
  return `led by ${leader?.machine ?? "another machine"}`;
}
