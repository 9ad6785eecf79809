import { expect, it } from "vitest";
import { tableOf, tableWith } from "./tables";

const keyOf = (row: { id: number }) => row.id;

it("replaces the row with the same key", () => {
  const table = tableOf(
    [
      { id: 1, wording: "old" },
      { id: 2, wording: "kept" },
    ],
    keyOf,
  );
  const next = tableWith(table, [{ id: 1, wording: "new" }], keyOf);
  expect([...next.values()].map((row) => row.wording)).toEqual(["new", "kept"]);
  expect(table.get(1)?.wording).toBe("old");
});

it("returns the same table if there are no rows", () => {
  const table = tableOf([{ id: 1 }], keyOf);
  expect(tableWith(table, [], keyOf)).toBe(table);
  expect(tableWith(table, undefined, keyOf)).toBe(table);
});

it("drops the oldest rows", () => {
  const table = tableWith(tableOf([{ id: 3 }, { id: 1 }], keyOf), [{ id: 2 }], keyOf, { most: 2, age: keyOf });
  expect([...table.keys()].sort()).toEqual([2, 3]);
});
