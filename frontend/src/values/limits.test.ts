import { expect, it } from "vitest";
import { limits, numberWithin, spanFault } from "./limits";

it("reads a number only within the limits that the platform exports", () => {
  expect(["-100", " 7 ", "2.5", "101", "", "x"].map((text) => numberWithin(text, limits.Priority))).toEqual([
    -100,
    7,
    ...Array(4).fill(undefined),
  ]);
  expect(["2.5", "0", "x"].map((text) => numberWithin(text, limits.Weight))).toEqual([2.5, undefined, undefined]);
  expect(spanFault(limits.Priority)).toBe("Enter a whole number from \u2212100 to 100.");
  expect(spanFault(limits.Weight)).toBe("Enter a number from 0.01 to 100.");
});

it("gives browsers patterns that they can read", () => {
  for (const { pattern } of [limits.PoolName, limits.MachineName]) expect(() => new RegExp(pattern, "v")).not.toThrow();
});
