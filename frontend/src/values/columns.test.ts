import { expect, it } from "vitest";
import { floatAt, intAt, itemAt, numberAt } from "./columns";

it("reads numbers, and NaN outside the column", () => {
  expect([numberAt([1, 2], 1), intAt(Int32Array.of(3), 0), floatAt(Float32Array.of(0.5), 0)]).toEqual([2, 3, 0.5]);
  expect([numberAt([1, 2], 2), intAt(new Int32Array(), -1), floatAt(new Float64Array(1), 1)]).toEqual([NaN, NaN, NaN]);
});

it("reads items, and names the position of a missing one", () => {
  expect(itemAt(["a", "b"], 1)).toBe("b");
  expect(() => itemAt(["a", "b"], 2)).toThrow("no item 2 in a list of 2");
});
