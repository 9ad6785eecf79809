// The golden examples of every published contract match their schemas, as a Python test checks too, and the reducers of
// the live topics accept the frames.
import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { Frame } from "./frames";
import { JOB, JOBS, MACHINES } from "./topics";

const FOLDER = new URL("../../../api_schema/", import.meta.url);
const CONTRACTS = ["gateway", "live", "worker"];

interface Schema {
  $ref?: string;
  type?: string;
  enum?: unknown[];
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema;
}

type Types = Readonly<Record<string, Schema>>;

const read = (path: string) => JSON.parse(readFileSync(new URL(path, FOLDER), "utf8"));
const filesOf = (contract: string) => readdirSync(new URL(`examples/${contract}`, FOLDER)).sort();
const frameOf = (name: string): Frame => read(`examples/live/${name}.json`);

/** The schema with a name; throws if there is none. */
function schemaOf(types: Types, name: string | undefined): Schema {
  const schema = types[name ?? ""];
  if (!schema) throw new Error(`the contract has no schema ${name}`);
  return schema;
}

/** Where a value differs from its schema. A field that the schema does not name is a fault. */
function faults(value: unknown, schema: Schema, types: Types, at = ""): string[] {
  if (schema.$ref) return faults(value, schemaOf(types, schema.$ref.split("/").at(-1)), types, at);
  if (schema.anyOf) return schema.anyOf.some((one) => faults(value, one, types).length === 0) ? [] : [at];
  if (schema.enum) return schema.enum.includes(value) ? [] : [at];
  switch (schema.type) {
    case "array":
      return Array.isArray(value)
        ? value.flatMap((item, index) => faults(item, schema.items ?? {}, types, `${at}[${index}]`))
        : [at];
    case "object":
      return isObject(value) ? faultsOfFields(value, schema, types, at) : [at];
    case "integer":
      return Number.isInteger(value) ? [] : [at];
    case "null":
      return value === null ? [] : [at];
    default:
      return !schema.type || typeof value === schema.type ? [] : [at];
  }
}

function faultsOfFields(value: Record<string, unknown>, schema: Schema, types: Types, at: string) {
  const missing = (schema.required ?? []).filter((name) => !(name in value)).map((name) => `${at}.${name} is missing`);
  const fields = Object.entries(value).flatMap(([name, field]) => {
    const known = schema.properties ? schema.properties[name] : (schema.additionalProperties ?? {});
    return known ? faults(field, known, types, `${at}.${name}`) : [`${at}.${name} is unknown`];
  });
  return [...missing, ...fields];
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

for (const contract of CONTRACTS) {
  const types: Types = read(`${contract}.openapi.json`).components.schemas;
  it.each(filesOf(contract))(`example ${contract}/%s matches its schema`, (file) => {
    const schema = schemaOf(types, file.split(".")[0]);
    expect(faults(read(`examples/${contract}/${file}`), schema, types)).toEqual([]);
  });
}

it("reads the example frames into tables", () => {
  const job = JOB.definition;
  const state = ["JobFrame.snapshot", "JobFrame.delta"].reduce(
    (state, name) => job.reduce(state, frameOf(name)),
    job.initial,
  );
  expect([...state.phases.values()].map((phase) => phase.state)).toEqual(["ended"]);
  expect([state.job?.state, state.metrics.size, state.groups.size, state.tokensPerS]).toEqual(["running", 1, 1, 0]);

  const machines = MACHINES.definition.reduce(MACHINES.definition.initial, frameOf("MachinesFrame.snapshot"));
  expect([...machines.machines.keys(), machines.intervals.size, machines.edits.size]).toEqual(["alpha", 1, 1]);

  const jobs = JOBS.definition;
  const listed = ["JobsFrame.snapshot", "JobsFrame.delta"].reduce(
    (state, name) => jobs.reduce(state, frameOf(name)),
    jobs.initial,
  );
  const [first] = listed.jobs.values();
  expect(listed.rewards.get(first?.id ?? "")?.map((reward) => reward.mean)).toEqual([0.75]);
});
