import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { asked, edits, pageOf, show } from "../../api/testing";
import SharesPage from "./SharesPage";

const SHARE = {
  name: "",
  weight: 1,
  machine_quota: null,
  priority_ceiling: 0,
  queued_jobs_quota: null,
  entitled: 2,
  num_held: 2,
  num_agent_slots: 0,
  num_borrowed: 0,
  is_short: false,
  machine_s: 5400,
};
const SHARES = [
  { ...SHARE, project: "default", weight: 2, entitled: 4, num_held: 9, num_agent_slots: 3, num_borrowed: 2 },
  { ...SHARE, project: "essays", machine_quota: 3, num_held: 1, num_borrowed: -1, is_short: true },
  { ...SHARE, project: "lab", num_held: 0, num_borrowed: -2, machine_s: 0 },
];
const POOLS = [
  { name: "default", num_machines: 6, is_open: true, projects: [] },
  { name: "h200", num_machines: 2, is_open: false, projects: ["essays", "lab"] },
];

function showShares({ isOperator = true } = {}) {
  const given = {
    "GET /me": { username: "ann", is_staff: isOperator, projects: [], scopes: [] },
    "GET /shares": pageOf(SHARES),
    "GET /pools": pageOf(POOLS),
    "PATCH /shares/essays": SHARES[1],
    "PUT /pools/default/grants/lab": null,
    "DELETE /pools/h200/grants/essays": null,
  };
  show(<SharesPage />, { at: "/shares", given });
  return screen.findByRole("region", { name: "Shares by project" });
}

const cells = (row: HTMLElement) =>
  within(row)
    .getAllByRole("cell")
    .map((cell) => cell.textContent);

it("gives each project its numbers, and says whether it borrows, lends or is short", async () => {
  const rows = within(await showShares({ isOperator: false })).getAllByRole("row");
  const [, first, second, third] = rows;
  if (!first || !second || !third) throw new Error("there are three projects");
  expect(cells(first)).toEqual(["default", "2", "–", "4", "6", "3", "", "borrows 2", "1 h 30 min"]);
  expect(cells(second)).toContain("is short of 1");
  expect(cells(third)).toEqual(expect.arrayContaining(["lends 2", "–"]));
  expect(screen.queryByRole("button", { name: /Edit|Grant|Revoke/ })).toBeNull();
  expect(screen.getByText("every project")).toBeTruthy();
});

it("sends an operator's edit with its reason, once its values can be used", async () => {
  await showShares();
  fireEvent.click(await screen.findByRole("button", { name: /Edit essays/ }));
  const dialog = screen.getByRole("dialog", { name: "Share of essays" });
  const apply = within(dialog).getByRole("button", { name: "Apply" });
  const type = (name: string, value: string) =>
    fireEvent.change(within(dialog).getByRole("textbox", { name }), { target: { value } });
  expect(apply).toHaveProperty("disabled", true);
  type("Weight", "0");
  expect(within(dialog).getByText("Enter a number from 0.01 to 100.")).toBeTruthy();
  type("Weight", "2.5");
  type("Quota of machines", "");
  type("Priority ceiling", "10");
  type("Reason", "a deadline");
  fireEvent.click(apply);
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const body = { weight: 2.5, machine_quota: null, priority_ceiling: 10, reason: "a deadline" };
  expect(edits()).toMatchObject([{ method: "PATCH", path: "/shares/essays", body }]);
  // What is shown is read anew.
  await waitFor(() => expect(asked.filter(({ path }) => path.startsWith("/shares?")).length).toBeGreaterThan(1));
});

it("grants a pool and revokes it", async () => {
  await showShares();
  fireEvent.click(await screen.findByRole("button", { name: /Grant default/ }));
  expect(screen.getByRole("dialog").textContent).toContain("only projects with a grant may use it");
  fireEvent.change(screen.getByRole("combobox", { name: "Project" }), { target: { value: "lab" } });
  fireEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Grant" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  fireEvent.click(screen.getByRole("button", { name: "Revoke h200 from essays" }));
  fireEvent.change(screen.getByRole("textbox", { name: "Reason" }), { target: { value: "over" } });
  fireEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Revoke" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(edits()).toMatchObject([
    { method: "PUT", path: "/pools/default/grants/lab", body: { reason: "" } },
    { method: "DELETE", path: "/pools/h200/grants/essays?reason=over", body: null },
  ]);
});
