// Parses tags that users type, and describes edits of a machine. Pure.
import type { MachineEdit } from "../../api/queries";
import type { EditRow, MachineRow } from "../../live/rows";
import { isOneOf } from "../../values/guards";
import { limits } from "../../values/limits";

export const ROLES = ["rollout", "train", "agent"] as const;
const LABEL = /^(gpu|gpus|host)=/;
const TAG = new RegExp(limits.Tag.pattern);

/** Why a text is not a valid tag; undefined if it is. */
export function tagFault(text: string): string | undefined {
  if (LABEL.test(text)) return `"${text}" is a label, which a machine reports of its own hardware: choose another name`;
  if (TAG.test(text)) return undefined;
  return `"${text}" is not a valid tag: use at most ${limits.Tag.maxLength} characters from a–z, 0–9 and . _ = -`;
}

/** Adds the tags of a text (separated by commas or spaces), sorted and without duplicates. */
export function tagsWith(tags: readonly string[], text: string): string[] {
  const added = text.split(/[\s,]+/).filter((tag) => tag !== "");
  return [...new Set([...tags, ...added])].sort();
}

export function editOf(
  machine: Pick<MachineRow, "tags" | "is_cordoned" | "is_draining" | "pool" | "cost">,
): MachineEdit {
  const { tags, is_cordoned, is_draining, pool, cost } = machine;
  return { tags: [...tags].sort(), is_cordoned, is_draining, pool, cost };
}

export function isChanged(machine: Parameters<typeof editOf>[0], edit: MachineEdit): boolean {
  return JSON.stringify(editOf(machine)) !== JSON.stringify({ ...edit, tags: [...edit.tags].sort() });
}

/** Describes an edit, for a mark on a lane. */
export function editText(edit: Pick<EditRow, "before" | "after" | "reason" | "author">): string {
  const parts: string[] = [];
  if (edit.after.tags) parts.push(`tags {${(edit.before.tags ?? []).join(", ")}} → {${edit.after.tags.join(", ")}}`);
  if (edit.after.is_draining !== undefined) parts.push(edit.after.is_draining ? "drained" : "no longer draining");
  else if (edit.after.is_cordoned !== undefined) parts.push(edit.after.is_cordoned ? "cordoned" : "uncordoned");
  if (edit.after.pool !== undefined) parts.push(`moved to the pool ${edit.after.pool}`);
  if (edit.after.cost !== undefined) parts.push(`now counts ${edit.after.cost} in shares`);
  return `${parts.join(", ") || "edited"} by ${edit.author.replace(/^user:/, "")}: ${edit.reason}`;
}

/** Role tags first, then the others by name. */
export function tagsInOrder(tags: readonly string[]): string[] {
  const rank = (tag: string) => (isOneOf(ROLES, tag) ? ROLES.indexOf(tag) : ROLES.length);
  return [...tags].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}
