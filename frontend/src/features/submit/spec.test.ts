import { expect, it } from "vitest";
import { itemAt } from "../../values/columns";
import { type Field, sections, withInstalled } from "./fields";
import { fallbackIn, faultsByField, parsed, shown } from "./spec";

const all = sections().flatMap((section) => section.fields);
const field = (name: string): Field =>
  itemAt(
    all.filter((one) => one.path.join(".") === name),
    0,
  );

it("makes a field for every property of the schema", () => {
  expect(sections().map((section) => section.name)).toEqual([
    "job",
    "model",
    "environment",
    "data",
    "rollout",
    "algorithm",
    "train",
    "evaluation",
    "placement",
  ]);
  expect(field("train.num_updates")).toMatchObject({
    kind: "integer",
    label: "Number of updates",
    unit: "updates",
    fallback: 100,
    help: "The job completes when it has published this many updates.",
  });
  expect(field("model.dtype")).toMatchObject({ kind: "choice", choices: ["float32", "bfloat16"] });
  expect(field("environment.name")).toMatchObject({ kind: "name", fallback: "command" });
  expect(field("environment.name").choices).toContain("calculator");
  expect(field("algorithm.advantage")).toMatchObject({ kind: "name", fallback: "group" });
  expect(all.map((one) => one.path.join("."))).not.toContain("environment.options");
  expect(field("environment.tasks")).toMatchObject({ kind: "text", upload: "file" });
  expect(field("data.jobs")).toMatchObject({ kind: "lines", hasJobs: true });
  expect(field("placement.train").kind).toBe("tags");
  expect(field("train.adam_betas").kind).toBe("numbers");
  expect(field("evaluation.k").kind).toBe("numbers");
  expect(field("name").isRequired).toBe(true);
  expect(field("train.lora.rank")).toMatchObject({ kind: "integer", label: "LoRA: rank", fallback: 16 });
  expect(field("train.lora.target_modules").kind).toBe("tags");
  expect(field("environment.timeout_s").range).toBe("above 0 and at most 86,400");
  expect(field("seed").range).toBe("at least 0 and below 2,147,483,648");
  expect(field("model.max_model_len").range).toBe("from 16 to 1,048,576");
  expect(field("algorithm.kl_estimator").help).toContain("k1: -d.");
  expect(field("algorithm.advantage").help).toContain("leave_one_out: ");
});

it("suggests installed names as well as built-in ones", () => {
  const names = new Map([
    ["environment.name", ["calculator", "chess"]],
    ["environment.reward", ["exact_answer"]],
  ]);
  const extended = withInstalled(sections(), names).flatMap((section) => section.fields);
  const choices = (name: string) => extended.find((one) => one.path.join(".") === name)?.choices;
  expect(choices("environment.name")).toEqual([...field("environment.name").choices, "chess"]);
  expect(choices("environment.reward")).toEqual(["exact_answer"]);
  expect(choices("model.dtype")).toEqual(["float32", "bfloat16"]);
});

it("shows the default that applies given the other fields", () => {
  const rate = field("train.learning_rate");
  expect(fallbackIn({}, rate)).toBe(1e-6);
  expect(fallbackIn({ train: { lora: null } }, rate)).toBe(1e-6);
  expect(fallbackIn({ train: { lora: { rank: 8 } } }, rate)).toBe(1e-5);
});

it("parses a user's text and shows it again", () => {
  expect(parsed(field("train.num_updates"), "12")).toBe(12);
  expect(parsed(field("train.num_updates"), "many")).toBe("many");
  expect(field("train.num_machines")).toMatchObject({ kind: "integer", fallback: 1, range: "from 1 to 64" });
  expect(parsed(field("train.num_machines"), "2")).toBe(2);
  expect(parsed(field("train.num_machines"), '{"min": 2')).toBe('{"min": 2');
  const bounds = parsed(field("train.num_machines"), '{"min": 2, "max": 8}');
  expect(bounds).toEqual({ min: 2, max: 8 });
  expect(parsed(field("train.num_machines"), shown(field("train.num_machines"), bounds))).toEqual(bounds);
  expect(parsed(field("placement.train"), "gpu=h200, fast")).toEqual(["gpu=h200", "fast"]);
  expect(parsed(field("train.adam_betas"), "0.9 0.99")).toEqual([0.9, 0.99]);
  expect(parsed(field("environment.command"), "python\nrun me.py\n")).toEqual(["python", "run me.py"]);
  expect(parsed(field("name"), "  ")).toBeUndefined();
  for (const [name, value] of [
    ["train.adam_betas", [0.9, 0.99]],
    ["environment.command", ["a", "b c"]],
  ] as const) {
    expect(parsed(field(name), shown(field(name), value))).toEqual(value);
  }
});

it("shows an error beside the field it concerns", () => {
  const faults = faultsByField(
    [
      { field: "placement.train.0", detail: "no tag" },
      { field: "environment", detail: "Value error, tasks: is required" },
      { field: "model", detail: "Field required" },
      { field: "", detail: "all wrong" },
    ],
    all,
  );
  expect(faults.get("placement.train")).toBe("no tag");
  expect(faults.get("environment.tasks")).toBe("is required");
  expect(faults.get("model.source")).toBe("is required");
  expect(faults.get("")).toBe("all wrong");
});
