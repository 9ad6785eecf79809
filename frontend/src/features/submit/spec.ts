// A draft job spec: a plain value that both the form and the editor change. It contains only the user's fields. Pure.
import { isMapping, type Mapping } from "../../values/guards";
import type { Field, Path } from "./fields";

export type Spec = Mapping;

/** Whether the job trains on an offline dataset instead of sampling itself. */
export function isOffline(spec: Spec): boolean {
  return valueAt(spec, ["data", "source"]) === "trajectories";
}

export function valueAt(spec: Spec, path: Path): unknown {
  return path.reduce<unknown>((value, key) => (isMapping(value) ? value[key] : undefined), spec);
}

/** The default that the platform uses if the field is omitted from this spec. */
export function fallbackIn(spec: Spec, field: Field): unknown {
  const isGiven = (name: string) => (valueAt(spec, [...field.path.slice(0, -1), name]) ?? null) !== null;
  const [, value] = Object.entries(field.fallbackWith).find(([name]) => isGiven(name)) ?? [];
  return value ?? field.fallback;
}

/** The text of an input for a value. */
export function shown(field: Field, value: unknown): string {
  if (value === undefined || value === null) return "";
  if (field.kind === "lines") return Array.isArray(value) ? value.join("\n") : String(value);
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Parses an input's text. Text that does not parse is kept, so that the platform reports the fault. */
export function parsed(field: Field, text: string): unknown {
  if (text.trim() === "") return undefined;
  switch (field.kind) {
    case "integer":
    case "number":
      return numberOf(text);
    case "flag":
      return text === "true" || text === "false" ? text === "true" : text;
    case "numbers":
      return parts(text).map(numberOf);
    case "tags":
      return parts(text);
    case "lines":
      return text.split("\n").filter((line) => line !== "");
    default:
      return text;
  }
}

function parts(text: string): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== "");
}

/** A number. Some fields take a word or a mapping (bounds) as well; the mapping is written as JSON. */
function numberOf(text: string): unknown {
  const value = Number(text);
  if (Number.isFinite(value)) return value;
  return text.trim().startsWith("{") ? mappingOf(text) : text;
}

function mappingOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

interface Fault {
  field: string;
  detail: string;
}

const MISSING = "Field required";

/** Faults by the path of their field. Those without a field come under the empty name. */
export function faultsByField(faults: readonly Fault[], fields: readonly Field[]): ReadonlyMap<string, string> {
  const names = new Set(fields.map((field) => field.path.join(".")));
  const found = new Map<string, string>();
  for (const fault of faults.flatMap((one) => ofMissing(one, fields))) {
    const { field, detail } = ofMember(fault, names);
    const name = [field, ...parents(field)].find((one) => names.has(one)) ?? "";
    const wording = name ? detail : [field, detail].filter(Boolean).join(": ");
    found.set(name, found.has(name) ? `${found.get(name)}; ${wording}` : wording);
  }
  return found;
}

/** A missing section is reported as its missing required fields, which the user can fill in. */
function ofMissing(fault: Fault, fields: readonly Field[]): Fault[] {
  const lacking = fields.filter((field) => field.isRequired && field.path.length > 1 && field.path[0] === fault.field);
  if (fault.detail !== MISSING || lacking.length === 0) return [fault];
  return lacking.map((field) => ({ field: field.path.join("."), detail: "is required" }));
}

/** A section's fault that starts with a member's name belongs to that member: `environment`, "tasks: is missing". */
function ofMember(fault: Fault, names: ReadonlySet<string>): Fault {
  const [, member, detail] = /^(?:Value error, )?(\w+): (.*)$/s.exec(fault.detail) ?? [];
  const name = `${fault.field}.${member}`;
  return detail && names.has(name) ? { field: name, detail } : fault;
}

/** `placement.train.0` → `placement.train`, `placement`. */
function parents(field: string): string[] {
  const keys = field.split(".");
  return keys.map((_, i) => keys.slice(0, keys.length - 1 - i).join(".")).filter((one) => one !== "");
}
