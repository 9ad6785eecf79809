// Turns the job spec's JSON Schema into form sections of labelled inputs with help, unit, default and range. Pure.
import schema from "../../../../api_schema/job_spec.schema.json";

export type Path = readonly string[];
export type FieldKind = "text" | "integer" | "number" | "flag" | "choice" | "name" | "lines" | "tags" | "numbers";

export interface Field {
  path: Path;
  label: string;
  kind: FieldKind;
  help: string;
  unit: string;
  isRequired: boolean;
  /** The default when the field is omitted; undefined if it is required or has no single default. */
  fallback: unknown;
  /** Defaults that apply instead once the sibling field of that name is set. */
  fallbackWith: Readonly<Record<string, unknown>>;
  /** Accepted values; for a name only suggestions, because the operator may have installed others. */
  choices: readonly string[];
  range: string;
  /** Accepts a file upload, whose address becomes the value. */
  upload: "archive" | "file" | undefined;
  /** Holds IDs of jobs in the project, which can be picked from a list. */
  hasJobs: boolean;
}

export interface Section {
  name: string;
  title: string;
  help: string;
  fields: readonly Field[];
  /** Shown open, because most jobs set something in it. */
  isOpen: boolean;
}

interface Node {
  $ref?: string;
  type?: string;
  anyOf?: Node[];
  enum?: string[];
  const?: unknown;
  default?: unknown;
  description?: string;
  properties?: Record<string, Node>;
  required?: string[];
  items?: Node;
  prefixItems?: Node[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  title?: string;
  "x-unit"?: string;
  "x-upload"?: "archive" | "file";
  "x-reference"?: string;
  "x-group"?: Record<string, string>;
  "x-default-with"?: Record<string, unknown>;
}

const ROOT = schema as Node & { $defs: Record<string, Node> };
const CLOSED: Record<string, string> = { rollout: "closed", trajectories: "closed" };

/** Sections in the schema's order that apply to a job, either offline or sampling itself. Top-level fields come first. */
export function sections(isOffline = false): Section[] {
  const properties = Object.entries(ROOT.properties ?? {});
  const plain = properties.filter(([, node]) => !resolved(node).properties && resolved(node).const === undefined);
  const top = plain.map(([name, node]) => fieldOf([name], node, ROOT.required ?? []));
  const nested = properties.filter(([, node]) => resolved(node).properties);
  return [
    { name: "job", title: "Job", help: "", fields: top, isOpen: true },
    ...nested.flatMap(([name, node]) => sectionOf(name, resolved(node), isOffline ? "trajectories" : "rollout")),
  ];
}

/** The sections with the names that the operator has installed, by the path of the field that takes them. */
export function withInstalled(all: readonly Section[], names: ReadonlyMap<string, readonly string[]>): Section[] {
  const extended = (field: Field): Field => {
    const installed = names.get(field.path.join("."));
    return installed ? { ...field, kind: "name", choices: [...new Set([...field.choices, ...installed])] } : field;
  };
  return all.map((section) => ({ ...section, fields: section.fields.map(extended) }));
}

function sectionOf(name: string, node: Node, source: string): Section[] {
  const shown = (node["x-group"] ?? CLOSED)[source];
  const help = textOf(node.description);
  const section = { name, title: node.title ?? name, help, fields: fieldsOf([name], node), isOpen: shown === "open" };
  return shown ? [section] : [];
}

/**
 * Fields of a nested section are listed with the others, prefixed with its title. A mapping without declared keys, such
 * as the options of an installed extension, is written in the editor alone.
 */
function fieldsOf(path: Path, node: Node): Field[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, child]) => {
    const shape = resolved(child);
    if (shape.type === "object" && !shape.properties) return [];
    if (!shape.properties) return fieldOf([...path, key], child, node.required ?? []);
    const inner = fieldsOf([...path, key], shape);
    return inner.map((field) => ({ ...field, label: `${child.title}: ${withinText(field.label)}` }));
  });
}

function fieldOf(path: Path, node: Node, required: readonly string[]): Field {
  const name = path.at(-1) ?? "";
  const shape = resolved(node);
  return {
    path,
    label: node.title ?? name,
    kind: kindOf(shape),
    help: textOf(node.description || shape.description),
    unit: node["x-unit"] ?? "",
    isRequired: required.includes(name),
    fallback: node.default ?? shape.default,
    fallbackWith: node["x-default-with"] ?? {},
    choices: shape.enum ?? (shape.type === "boolean" ? ["true", "false"] : []),
    range: rangeOf(shape),
    upload: node["x-upload"],
    hasJobs: node["x-reference"] === "jobs",
  };
}

function kindOf(node: Node): FieldKind {
  if (node.enum) return node.anyOf?.some(isAnyName) ? "name" : "choice";
  if (node.type === "boolean") return "flag";
  if (node.type === "integer") return "integer";
  if (node.type === "number") return "number";
  if (node.prefixItems || node.items?.type === "integer") return "numbers";
  if (node.type === "array") return node.items && "pattern" in node.items ? "tags" : "lines";
  return "text";
}

function isAnyName(node: Node): boolean {
  return node.type === "string" && !node.enum && !node.$ref;
}

function rangeOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Node): string {
  const shown = (bound: number) => bound.toLocaleString("en-GB");
  if (minimum !== undefined && maximum !== undefined) return `from ${shown(minimum)} to ${shown(maximum)}`;
  const parts: string[] = [];
  if (minimum !== undefined) parts.push(`at least ${shown(minimum)}`);
  if (exclusiveMinimum !== undefined) parts.push(`above ${shown(exclusiveMinimum)}`);
  if (maximum !== undefined) parts.push(`at most ${shown(maximum)}`);
  if (exclusiveMaximum !== undefined) parts.push(`below ${shown(exclusiveMaximum)}`);
  return parts.join(" and ");
}

/** Follows references. An optional value resolves to its non-null type. A description of the field itself comes first. */
function resolved(node: Node): Node {
  if (node.$ref) {
    const { $ref, ...rest } = node;
    return { ...resolved(ROOT.$defs[$ref.split("/").at(-1) ?? ""] ?? {}), ...rest };
  }
  const given = node.anyOf?.find((one) => one.type !== "null");
  if (!given) return node;
  const shape = resolved(given);
  return { ...node, ...shape, description: node.description ?? shape.description ?? "" };
}

/** A label that follows other words; acronyms keep their capitals. */
function withinText(label: string): string {
  return label.replace(/^[A-Z](?=[a-z])/, (first) => first.toLowerCase());
}

function textOf(description: string | undefined): string {
  return (description ?? "").replaceAll("\n", " ");
}
