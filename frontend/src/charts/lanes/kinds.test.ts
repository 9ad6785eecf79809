import { expect, it } from "vitest";
import { describeState, KINDS, keyOf } from "./kinds";
import { inOrder } from "./lanes";
import { patternOf } from "./patterns";

it("puts productive kinds first and unknown time last", () => {
  const productive = KINDS.map((kind) => kind.isProductive);
  expect(productive).toEqual([...productive].sort((a, b) => Number(b) - Number(a)));
  expect(KINDS.filter((kind) => kind.isProductive).map((kind) => kind.key)).toEqual([
    "serving-full",
    "serving-partly_filled",
    "serving-draining_tail",
    "serving",
    "training",
    "running_agents",
  ]);
  expect(KINDS.slice(-2).map((kind) => kind.key)).toEqual(["unknown", "down"]);
});

it("draws no two kinds alike, and distinguishes kinds of one colour by their pattern", () => {
  const looks = KINDS.map(({ key }) => patternOf(key));
  expect(new Set(looks.map(({ colour, strokes }) => `${colour} ${strokes}`)).size).toBe(KINDS.length);
  const plain = looks.filter(({ strokes }) => strokes === "");
  expect(plain.map(({ colour }) => colour)).toEqual(["--serving", "--idle"]);
});

it("keeps one order, whatever the order of the rows", () => {
  const rows = [...KINDS].map(({ state, cause }) => ({ state, cause }));
  expect(inOrder([...rows].reverse()).map(keyOf)).toEqual(KINDS.map(({ key }) => key));
});

it("has a index for unknown states", () => {
  expect(keyOf({ state: "idle", cause: "a_new_cause" })).toBe("idle");
  expect(keyOf({ state: "a_new_state", cause: "" })).toBe("unknown");
  expect(describeState("idle", "a_new_cause")).toBe("idle: a new cause");
  expect(describeState("a_new_state", "")).toBe("a new state");
  expect(describeState("serving", "draining_tail")).toBe("serving: draining tail");
});
