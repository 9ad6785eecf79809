import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { edits, pageOf, Refusal, show } from "../../api/testing";
import TokensPage from "./TokensPage";

vi.mock("../../live/LiveProvider", () => ({ useServerNow: () => Date.parse("2030-06-01T00:00:00Z") }));

const TOKEN = {
  id: "tok_1",
  name: "ci",
  scopes: ["read", "submit"],
  project: "default",
  user: "ann",
  created_at: "2030-01-01T00:00:00Z",
  last_used_at: null,
  expires_at: null,
  revoked_at: null,
};
const GIVEN = {
  "GET /me": {
    username: "ann",
    is_staff: false,
    scopes: [],
    projects: [
      { slug: "default", name: "default", role: "owner", may_write: true },
      { slug: "seen", name: "seen", role: "viewer", may_write: false },
    ],
  },
  "GET /tokens": pageOf([TOKEN, { ...TOKEN, id: "tok_2", name: "old", revoked_at: "2030-02-01T00:00:00Z" }]),
  "POST /tokens": { id: "tok_3", secret: "sf_secret" },
  "DELETE /tokens/tok_1": null,
};

it("makes a token with scopes and an expiry, and shows its secret once", async () => {
  show(<TokensPage />, { given: GIVEN });
  await screen.findByTestId("tokens");
  fireEvent.click(screen.getByRole("button", { name: "New token" }));
  const dialog = within(await screen.findByRole("dialog"));
  const days = dialog.getByRole("textbox", { name: "Expires after (days)" });
  fireEvent.change(dialog.getByRole("textbox", { name: "Name" }), { target: { value: "ci-nightly" } });
  fireEvent.click(dialog.getByRole("checkbox", { name: /^sessions/ }));
  fireEvent.change(days, { target: { value: "400" } });
  expect(dialog.getByText("Enter a whole number from 1 to 365.").id).toBe(
    days.getAttribute("aria-describedby")?.split(" ")[0],
  );
  expect(dialog.getByRole("button", { name: "Create token" })).toHaveProperty("disabled", true);
  fireEvent.change(days, { target: { value: "30" } });
  expect(within(dialog.getByRole("combobox", { name: "Project" })).getAllByRole("option")).toHaveLength(1);
  fireEvent.click(dialog.getByRole("button", { name: "Create token" }));
  expect((await screen.findByTestId("secret")).textContent).toBe("sf_secret");
  const body = { name: "ci-nightly", scopes: expect.not.arrayContaining(["sessions"]), expires_in_days: 30 };
  expect(edits()).toMatchObject([{ method: "POST", path: "/tokens", body: { ...body, project: "default" } }]);
  fireEvent.click(screen.getByRole("button", { name: "Done" }));
  expect(screen.queryByTestId("secret")).toBeNull();
});

it("says beside a field why the platform refuses it", async () => {
  const refusal = new Refusal(400, {
    detail: "Refused.",
    errors: [{ field: "scopes", detail: "submit is not yours." }],
  });
  show(<TokensPage />, { given: { ...GIVEN, "POST /tokens": refusal } });
  await screen.findByTestId("tokens");
  fireEvent.click(screen.getByRole("button", { name: "New token" }));
  fireEvent.change(screen.getByRole("textbox", { name: "Name" }), { target: { value: "ci" } });
  fireEvent.click(screen.getByRole("button", { name: "Create token" }));
  const fault = await screen.findByText("submit is not yours.");
  expect(screen.getByRole("group", { name: "Scopes" }).getAttribute("aria-describedby")).toBe(fault.id);
});

it("revokes a token that is still active, after a question", async () => {
  show(<TokensPage />, { given: GIVEN });
  const rows = within(await screen.findByTestId("tokens")).getAllByRole("row");
  expect(rows.map((row) => within(row).queryAllByRole("button", { name: /^Revoke/ }).length)).toEqual([0, 1, 0]);
  fireEvent.click(screen.getByRole("button", { name: "Revoke ci" }));
  fireEvent.click(screen.getByRole("button", { name: "Keep it" }));
  expect(edits()).toEqual([]);
  fireEvent.click(screen.getByRole("button", { name: "Revoke ci" }));
  fireEvent.click(screen.getByRole("button", { name: "Revoke the token" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(edits()).toMatchObject([{ method: "DELETE", path: "/tokens/tok_1" }]);
});
