import { expect, it } from "vitest";
import { isMapping, isOneOf, mappingsIn } from "./guards";

it("distinguishes mappings from lists and plain values", () => {
  expect([{}, { a: 1 }, [], null, "a", undefined].map(isMapping)).toEqual([true, true, false, false, false, false]);
});

it("keeps only the mappings in a list", () => {
  expect(mappingsIn([{ a: 1 }, "b", null])).toEqual([{ a: 1 }]);
  expect(mappingsIn({ a: 1 })).toEqual([]);
});

it("accepts only text from the set", () => {
  expect(["open", "shut", "", null].map((text) => isOneOf(["open", "shut"], text))).toEqual([true, true, false, false]);
});
