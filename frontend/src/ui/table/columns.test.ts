import { expect, it } from "vitest";
import { type Column, nextOrder, sorted } from "./columns";

interface Row {
  name: string;
  size: number | null;
}

const ROWS: readonly Row[] = [
  { name: "beta", size: 10 },
  { name: "alpha", size: null },
  { name: "gamma", size: 9 },
];
const COLUMNS: readonly Column<Row>[] = [
  { head: "Name", order: ({ name }) => name, cell: ({ name }) => name },
  { head: "Size", order: ({ size }) => size, cell: ({ size }) => size },
];
const names = (order: string) => sorted(ROWS, COLUMNS, order).map(({ name }) => name);

it("sorts by a column in both directions, with missing values last", () => {
  expect(names("Name")).toEqual(["alpha", "beta", "gamma"]);
  expect(names("-Name")).toEqual(["gamma", "beta", "alpha"]);
  expect(names("Size")).toEqual(["gamma", "beta", "alpha"]);
  expect(names("-Size")).toEqual(["beta", "gamma", "alpha"]);
});

it("keeps the usual order for a heading that no column has", () => {
  expect(names("")).toEqual(["beta", "alpha", "gamma"]);
  expect(names("Colour")).toEqual(["beta", "alpha", "gamma"]);
});

it("turns with each click from ascending to descending to the usual order", () => {
  expect(nextOrder("", "Name")).toBe("Name");
  expect(nextOrder("Name", "Name")).toBe("-Name");
  expect(nextOrder("-Name", "Name")).toBe("");
  expect(nextOrder("-Name", "Size")).toBe("Size");
});
