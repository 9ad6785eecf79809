// Chooses the parts of a job to delete. Choosing the whole job deselects its parts. Pure.
import type { Part } from "./queries";

/** The most parts that one request may name. */
export const MAX_PARTS = 500;

export function partKey({ kind, number }: Pick<Part, "kind" | "number">): string {
  return number === null ? kind : `${kind}-${number}`;
}

/** `Checkpoint after update 12`, `The whole job`. */
export function partWords({ kind, number }: Pick<Part, "kind" | "number">): string {
  if (kind === "job") return "The whole job";
  if (kind === "checkpoint") return `Checkpoint after update ${number}`;
  if (kind === "version") return `Policy version ${number}`;
  if (kind === "upload") return "Upload";
  return kind.charAt(0).toUpperCase() + kind.slice(1);
}

export function toggled(chosen: ReadonlySet<string>, part: Part): Set<string> {
  const key = partKey(part);
  if (chosen.has(key)) return new Set([...chosen].filter((one) => one !== key));
  if (part.kind === "job") return new Set([key]);
  return new Set([...chosen].filter((one) => one !== "job").concat(key));
}

/** All deletable parts of a kind except the newest `keep`, up to the most that one request may name. */
export function allOf(parts: readonly Part[], kind: string, keep: number): Set<string> {
  const ofKind = parts.filter((part) => part.kind === kind).sort((a, b) => (a.number ?? 0) - (b.number ?? 0));
  const going = ofKind.slice(0, Math.max(ofKind.length - keep, 0)).filter((part) => part.refusal === "");
  return new Set(going.slice(0, MAX_PARTS).map(partKey));
}

export function chosenOf(parts: readonly Part[], chosen: ReadonlySet<string>): Part[] {
  return parts.filter((part) => part.refusal === "" && chosen.has(partKey(part)));
}

export function bytesOf(parts: readonly Pick<Part, "num_bytes">[]): number {
  return parts.reduce((sum, part) => sum + part.num_bytes, 0);
}
