import { expect, it } from "vitest";
import { sections } from "./fields";
import { isOffline, parsed, shown } from "./spec";
import { imitationOf, STARTER_SPECS } from "./starterSpecs";

it("starts each kind of job with the fields that define it", () => {
  for (const starter of STARTER_SPECS) expect(isOffline(starter.begin())).toBe(starter.isOffline);
});

it("imitates a job starting from its initial model", () => {
  const model = { source: "artifact://art_1", max_model_len: 512, dtype: "float32" };
  const spec = imitationOf({ id: "job_1", name: "calculator", spec: { model, environment: {} } });
  expect(spec).toMatchObject({
    name: "calculator imitated",
    model: { source: "artifact://art_1", max_model_len: 512 },
    data: { source: "trajectories", jobs: ["job_1"], min_reward: 1 },
    algorithm: { name: "sft" },
  });
  expect(spec).not.toHaveProperty("environment");
});

it("shows only the sections that apply, and opens the data section for an offline dataset", () => {
  const names = (offline: boolean) => sections(offline).map((section) => section.name);
  expect(names(false)).toContain("rollout");
  expect(names(true)).toEqual(["job", "model", "data", "algorithm", "train", "placement"]);
  expect(sections(true).find((section) => section.name === "data")?.isOpen).toBe(true);
});

it("sets a flag to its value", () => {
  const field = sections()
    .flatMap((section) => section.fields)
    .find((one) => one.path.join(".") === "data.shuffle");
  if (!field) throw new Error("there is no field data.shuffle");
  expect(field).toMatchObject({ kind: "flag", fallback: true, choices: ["true", "false"] });
  expect(parsed(field, "false")).toBe(false);
  expect(parsed(field, shown(field, true))).toBe(true);
  expect(parsed(field, "")).toBeUndefined();
});
