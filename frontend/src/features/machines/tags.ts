// Parses tags that users type, and describes edits of a machine. Pure.
import type { MachineEdit } from "../../api/queries";
import type { EditRow } from "../../live/rows";
import { isOneOf } from "../../values/guards";
import { limits } from "../../values/limits";

export const ROLES = ["rollout", "train", "agent"] as const;
const LABEL = /^(gpu|gpus|host)=/;
const TAG = new RegExp(limits.Tag.pattern);
const NAMES = Object.keys(limits.DesiredState.properties) as (keyof MachineEdit)[];
/** The fields that are a text or a number. */
export const SETTINGS = NAMES.filter((name) => isOneOf(["string", "number", "integer"], shapeOf(name).type));

type Shapes = typeof limits.DesiredState.properties;
type Shape = { type: string } & Partial<Omit<Shapes["pool"] & Shapes["cost"], "default">>;

export function shapeOf(name: keyof MachineEdit): Shape {
  return limits.DesiredState.properties[name];
}

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

/** The fields of a machine's desired state. The cast is safe, because the types are generated from the same fields. */
export function editOf(machine: MachineEdit): MachineEdit {
  const edit = Object.fromEntries(NAMES.map((name) => [name, machine[name]])) as MachineEdit;
  return { ...edit, tags: [...machine.tags].sort() };
}

export function isChanged(machine: MachineEdit, edit: MachineEdit): boolean {
  return JSON.stringify(editOf(machine)) !== JSON.stringify({ ...edit, tags: [...edit.tags].sort() });
}

/** Describes an edit, for a mark on a lane. */
export function editText(edit: Pick<EditRow, "before" | "after" | "reason" | "author">): string {
  const parts: string[] = [];
  if (edit.after.tags) parts.push(`tags {${(edit.before.tags ?? []).join(", ")}} → {${edit.after.tags.join(", ")}}`);
  if (edit.after.is_draining !== undefined) parts.push(edit.after.is_draining ? "drained" : "no longer draining");
  else if (edit.after.is_cordoned !== undefined) parts.push(edit.after.is_cordoned ? "cordoned" : "uncordoned");
  if (edit.after.pool !== undefined) parts.push(`moved to the pool ${edit.after.pool}`);
  for (const name of SETTINGS) {
    if (name !== "pool" && edit.after[name] !== undefined)
      parts.push(`${name} ${edit.before[name]} → ${edit.after[name]}`);
  }
  return `${parts.join(", ") || "edited"} by ${edit.author.replace(/^user:/, "")}: ${edit.reason}`;
}

/** Role tags first, then the others by name. */
export function tagsInOrder(tags: readonly string[]): string[] {
  const rank = (tag: string) => (isOneOf(ROLES, tag) ? ROLES.indexOf(tag) : ROLES.length);
  return [...tags].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}
