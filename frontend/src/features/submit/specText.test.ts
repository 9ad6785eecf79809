import { expect, it } from "vitest";
import { draftOf, withText, withValue } from "./specText";

const EMPTY = { spec: {}, text: "", fault: "" };
const TYPED = `# The nightly run.
name: nightly

train:
  # as in the paper
  num_updates: 50 # enough for a first look
  learning_rate: 0.0003
environment: { name: calculator }
`;
const typed = withText(EMPTY, TYPED);

it("leaves comments and layout as typed when a field changes", () => {
  const changed = withValue(typed, ["train", "num_updates"], 80);
  expect(changed.text).toBe(TYPED.replace("50", "80"));
  expect(changed.spec).toMatchObject({ name: "nightly", train: { num_updates: 80 } });
  expect(withValue(changed, ["train", "num_updates"], 50).text).toBe(TYPED);
});

it("adds a field to its section, and a section that is not there yet", () => {
  expect(withValue(typed, ["train", "batch"], 4).text).toBe(TYPED.replace("0.0003\n", "0.0003\n  batch: 4\n"));
  expect(withValue(typed, ["rollout", "group_size"], 4).text).toBe(`${TYPED}rollout:\n  group_size: 4\n`);
  expect(withValue(EMPTY, ["train", "lora", "rank"], 8)).toEqual({
    spec: { train: { lora: { rank: 8 } } },
    text: "train:\n  lora:\n    rank: 8\n",
    fault: "",
  });
});

it("removes a field together with the sections that become empty", () => {
  expect(withValue(typed, ["environment", "name"], undefined).text).toBe(TYPED.replace(/environment.*\n/, ""));
  const nested = draftOf({ name: "a", train: { lora: { rank: 8 } } });
  expect(withValue(nested, ["train", "lora", "rank"], undefined).text).toBe("name: a\n");
  expect(withValue(typed, ["data", "jobs"], undefined).text).toBe(TYPED);
});

it.each([
  ["a section without fields", "train:\n", { train: { num_updates: 5 } }],
  ["a section that is a number", "train: 3\n", { train: { num_updates: 5 } }],
  ["a text that is empty but for a comment", "# soon\n", { train: { num_updates: 5 } }],
  ["a section that repeats another", "a: &a\n  x: 1\ntrain: *a\n", { a: { x: 1 }, train: { x: 1, num_updates: 5 } }],
])("sets a field of %s", (_, text, spec) => {
  expect(withValue(withText(EMPTY, text), ["train", "num_updates"], 5).spec).toEqual(spec);
});

it("says why a text is not a spec, and writes the last spec anew when a field changes", () => {
  expect(withText(typed, "name: [").fault).toMatch(/flow/i);
  expect(withText(typed, "- a\n").fault).toBe("A job spec must be a mapping of keys to values.");
  const broken = withText(draftOf({ name: "a" }), "name: [");
  expect(broken.spec).toEqual({ name: "a" });
  expect(withValue(broken, ["seed"], 7)).toEqual({
    spec: { name: "a", seed: 7 },
    text: "name: a\nseed: 7\n",
    fault: "",
  });
});
