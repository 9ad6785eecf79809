import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { addressShown, show } from "../../api/testing";
import type { Columns } from "./columns";
import { PagedTable, usePage } from "./PagedTable";
import { Table } from "./Table";

interface Row {
  name: string;
  size: number;
}

const ROWS: readonly Row[] = [
  { name: "small", size: 1 },
  { name: "large", size: 30 },
  { name: "middle", size: 4 },
];
const COLUMNS: Columns<Row> = [
  { head: "Name", isRowHead: true, cell: ({ name }) => name },
  { head: "Size", isNumber: true, order: ({ size }) => size, cell: ({ size }) => size },
  { head: "Delete", isHeadHidden: true, cell: () => "x" },
  false,
];
const keyOf = ({ name }: Row) => name;
const shownNames = () => screen.getAllByRole("rowheader").map((cell) => cell.textContent);

it("names its columns and rows, and leaves out columns that do not apply", () => {
  show(<Table rows={ROWS} columns={COLUMNS} keyOf={keyOf} />);
  expect(screen.getAllByRole("columnheader").map((cell) => cell.textContent)).toEqual(["Name", "Size", "Delete"]);
  expect(shownNames()).toEqual(["small", "large", "middle"]);
  expect(screen.queryByRole("button")).toBeNull();
});

it("is sorted by a click on a heading, which the address keeps", () => {
  show(<Table rows={ROWS} columns={COLUMNS} keyOf={keyOf} sortedBy="sort" />, { at: "/machines?q=a" });
  const heading = screen.getByRole("columnheader", { name: "Size" });
  fireEvent.click(within(heading).getByRole("button"));
  expect(shownNames()).toEqual(["small", "middle", "large"]);
  expect(heading.getAttribute("aria-sort")).toBe("ascending");
  fireEvent.click(within(heading).getByRole("button"));
  expect(shownNames()).toEqual(["large", "middle", "small"]);
  expect(addressShown()).toBe("/machines?q=a&sort=-Size");
});

it("begins in the order of the address, and shows rows below a row", () => {
  const below = ({ name, size }: Row) =>
    size > 10 ? (
      <tr>
        <td>{name} is too large</td>
      </tr>
    ) : null;
  show(<Table rows={ROWS} columns={COLUMNS} keyOf={keyOf} sortedBy="sort" below={below} />, { at: "/?sort=-Size" });
  const rows = screen.getAllByRole("row").map((row) => row.textContent);
  expect(rows.slice(1)).toEqual(["large30x", "large is too large", "middle4x", "small1x"]);
});

function List({ count = 3, results = ROWS, error = null as Error | null }) {
  const { page } = usePage(2);
  const read = { data: error ? undefined : { results: results.slice(page.offset), count }, error, isPending: false };
  return <PagedTable read={read} what="rows" none="Nothing." limit={2} columns={COLUMNS} keyOf={keyOf} />;
}

it("moves through the pages of a list and keeps the rest of the address", () => {
  show(<List />, { at: "/?state=open" });
  expect(screen.getByText("1–2 of 3")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Older" }));
  expect(addressShown()).toBe("/?state=open&offset=2");
  expect(screen.getByText("3–3 of 3")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Older" })).toHaveProperty("disabled", true);
  fireEvent.click(screen.getByRole("button", { name: "Newer" }));
  expect(addressShown()).toBe("/?state=open");
});

it("says that a list is empty, or why it could not be read", () => {
  const { unmount } = show(<List results={[]} count={0} />);
  expect(screen.getByText("Nothing.")).toBeTruthy();
  unmount();
  show(<List error={new Error("The platform is away.")} />);
  expect(screen.getByRole("alert").textContent).toContain("The platform is away.");
  expect(screen.queryByRole("table")).toBeNull();
});
