// Summarises a machine's hardware and health, and finds machines by a search. Pure.
import type { MachineRow } from "../../live/rows";
import { bytes, clock, NONE, plural } from "../../ui/words/format";

/** "96 cores, 2.0 TiB, 8 × NVIDIA H200". */
export function hardwareText({ num_cores, memory_bytes, accelerators }: MachineRow["capabilities"]): string {
  if (!num_cores) return NONE;
  const counts = new Map<string, number>();
  for (const name of accelerators ?? []) counts.set(name, (counts.get(name) ?? 0) + 1);
  const cards = [...counts].map(([name, count]) => (count > 1 ? `${count}\u00a0× ${name}` : name));
  return [plural(num_cores, "core"), ...(memory_bytes ? [bytes(memory_bytes)] : []), ...cards].join(", ");
}

/** Why a machine gets no work and until when; null if it does. `now`: epoch milliseconds. */
export function quarantineText(machine: Pick<MachineRow, "quarantine" | "role">, now: number): string | null {
  const quarantine = machine.quarantine;
  if (!quarantine) return null;
  const isOver = quarantine.until <= now;
  const until = isOver
    ? machine.role
      ? "A phase is trying it out"
      : "The next phase tries it out"
    : `Gets no work until ${clock(quarantine.until)}`;
  const row = quarantine.num_quarantines > 1 ? ` (number ${quarantine.num_quarantines} in a row)` : "";
  return `${until}${row}: ${quarantine.reason}.`;
}

/** Why each cordoned device of a machine gets no work, and the command that releases it. */
export function deviceProblems({ name: machine, capabilities }: Pick<MachineRow, "name" | "capabilities">) {
  const devices = capabilities.devices ?? [];
  return Object.entries(capabilities.device_problems ?? {}).map(([id, problem]) => {
    const name = devices.find((device) => device.id === id)?.name;
    const problemText = `${name ? `${name} ` : ""}${id} is cordoned: ${problem}.`;
    return { id, problemText, command: `seamlessflow machines release ${machine} --device ${id} --reason "…"` };
  });
}

type Found = Pick<MachineRow, "name" | "tags" | "labels" | "role" | "open_state" | "is_healthy" | "health">;

/** Machines where every search word is part of the name, a tag, a label, the role, the health or the current activity. */
export function machinesFound<Row extends Found>(machines: readonly Row[], search: string): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return machines.filter((machine) => {
    const doing = machine.is_healthy ? machine.open_state.replaceAll("_", " ") : "";
    const fields = [machine.name, ...machine.tags, ...machine.labels, machine.role ?? "", machine.health, doing];
    const text = fields.join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
