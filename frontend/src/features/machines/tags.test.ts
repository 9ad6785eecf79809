import { expect, it } from "vitest";
import type { MachineEdit } from "../../api/queries";
import { editOf, editText, isChanged, tagFault, tagsInOrder, tagsWith } from "./tags";

const machine = { tags: ["train", "rollout"], is_cordoned: false, is_draining: false } as MachineEdit;

it("adds several tags at once, without duplicates", () => {
  expect(tagsWith(["rollout"], "train, rack=3  rollout")).toEqual(["rack=3", "rollout", "train"]);
});

it("explains why a text is not a valid tag", () => {
  expect(tagFault("rack=3")).toBeUndefined();
  expect(tagFault("gpu=h200")).toContain('"gpu=h200" is a label');
  expect(tagFault("GPU")).toContain('"GPU" is not a valid tag');
  expect(tagFault("x".repeat(64))).toBeDefined();
});

it("sees no change if only the order of tags differs", () => {
  expect(isChanged(machine, { ...editOf(machine), tags: ["rollout", "train"] })).toBe(false);
  expect(isChanged(machine, { ...editOf(machine), tags: ["rollout"] })).toBe(true);
  expect(isChanged(machine, { ...editOf(machine), is_draining: true })).toBe(true);
  expect(isChanged(machine, { ...editOf(machine), pool: "lab" })).toBe(true);
});

it("describes an edit, its reason and its author", () => {
  const edit = {
    before: { tags: ["rollout"] },
    after: { tags: ["rollout", "train"] },
    reason: "why not",
    author: "user:ada",
  };
  expect(editText(edit)).toBe("tags {rollout} → {rollout, train} by ada: why not");
  const drain = { before: {}, after: { is_cordoned: true, is_draining: true }, reason: "disk", author: "user:ada" };
  expect(editText(drain)).toBe("drained by ada: disk");
  const moved = { before: { pool: "default" }, after: { pool: "lab" }, reason: "theirs", author: "user:ada" };
  expect(editText(moved)).toBe("moved to the pool lab by ada: theirs");
  const dear = { before: { cost: 1 }, after: { cost: 2.5 }, reason: "eight cards", author: "user:ada" };
  expect(editText(dear)).toBe("cost 1 → 2.5 by ada: eight cards");
});

it("puts role tags first", () => {
  expect(tagsInOrder(["a", "train", "rollout", "b"])).toEqual(["rollout", "train", "a", "b"]);
});
