// What a machine is made of, in one line, and which machines a search finds. Pure.
import type { MachineRow } from "../../live/rows";
import { bytes, NONE, plural } from "../../ui/format";

/** "96 cores, 2.0 TiB, 8 × NVIDIA H200". */
export function hardwareSaid({ num_cores, memory_bytes, accelerators }: MachineRow["capabilities"]): string {
  if (!num_cores) return NONE;
  const counts = new Map<string, number>();
  for (const name of accelerators ?? []) counts.set(name, (counts.get(name) ?? 0) + 1);
  const cards = [...counts].map(([name, count]) => (count > 1 ? `${count}\u00a0× ${name}` : name));
  return [plural(num_cores, "core"), ...(memory_bytes ? [bytes(memory_bytes)] : []), ...cards].join(", ");
}

/** Machines of which every word of the search is a part of their name, a tag, their role or what they do. */
export function machinesFound<Row extends Pick<MachineRow, "name" | "tags" | "role" | "open_state" | "is_healthy">>(
  machines: readonly Row[],
  search: string,
): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return machines.filter((machine) => {
    const state = machine.is_healthy ? machine.open_state.replaceAll("_", " ") : "down";
    const text = [machine.name, ...machine.tags, machine.role ?? "", state].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
