import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { edits, show } from "../../api/testing";
import { JobPartsDialog } from "./JobPartsDialog";
import { PolicyCard } from "./PolicyCard";
import type { Setting, StoredJob } from "./queries";

const LOGS: Setting = {
  name: "logs_days",
  help: "How long logs are kept.",
  unit: "days",
  value: 30,
  default: 30,
  minimum: 0,
  maximum: 36_500,
  may_be_none: true,
  is_own: false,
  is_of_installation: false,
};

it("gives a setting a value of the project's own, and lets it inherit again", async () => {
  const settings = [LOGS];
  const given = { "GET /storage/policy": { settings }, "PATCH /storage/policy": { settings } };
  show(<PolicyCard project="lab" isOwner isOperator={false} />, { given });
  expect((await screen.findByTestId("policy")).textContent).toContain("30 days");
  fireEvent.click(screen.getByRole("button", { name: "Edit" }));
  const dialog = within(screen.getByRole("dialog"));
  const save = dialog.getByRole("button", { name: "Save" });
  expect(save).toHaveProperty("disabled", true);
  fireEvent.click(dialog.getByRole("checkbox", { name: "Inherit (30 days)" }));
  const value = dialog.getByRole("textbox", { name: "logs_days: days" });
  fireEvent.change(value, { target: { value: "seven" } });
  const group = dialog.getByRole("group", { name: "logs_days" });
  const words = group
    .getAttribute("aria-describedby")
    ?.split(" ")
    .map((id) => document.getElementById(id)?.textContent);
  expect(words).toEqual(["Enter a whole number from 0 to 36500.", "How long logs are kept."]);
  expect(save).toHaveProperty("disabled", true);
  fireEvent.change(value, { target: { value: "7" } });
  fireEvent.click(save);
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const body = { settings: { logs_days: 7 }, reset: [] };
  expect(edits()).toMatchObject([{ method: "PATCH", path: "/storage/policy?project=lab", body }]);
});

it("deletes the chosen parts of a job, and never a part besides the whole", async () => {
  const part = (kind: string, number: number | null, refusal = "") => ({
    id: "job_1",
    kind,
    number,
    name: "",
    reason: "",
    num_bytes: 2048,
    refusal, // biome-ignore format: a table
  });
  const items = [part("job", null), part("logs", null), part("checkpoint", 3, "it is the newest")];
  const onClose = vi.fn();
  // The dialog uses no more of a job.
  const job = { id: "job_1", name: "essays" } as StoredJob;
  show(<JobPartsDialog job={job} project="lab" onClose={onClose} />, {
    given: { "GET /storage/jobs/job_1": { items }, "POST /storage/deletions": { items: [] } },
  });
  const logs = await screen.findByRole<HTMLInputElement>("checkbox", { name: "Logs" });
  const remove = screen.getByRole("button", { name: "Delete permanently" });
  expect(remove).toHaveProperty("disabled", true);
  expect(screen.getByRole("checkbox", { name: /Cannot be deleted: it is the newest/ })).toHaveProperty(
    "disabled",
    true,
  );
  fireEvent.click(logs);
  fireEvent.click(screen.getByRole("checkbox", { name: "The whole job" }));
  expect(logs.checked).toBe(false);
  expect(screen.getByTestId("freed").textContent).toMatch(/^1 part, 2.0 KiB/);
  fireEvent.change(screen.getByRole("textbox", { name: "Reason" }), { target: { value: "only a try" } });
  fireEvent.click(remove);
  await waitFor(() => expect(onClose).toHaveBeenCalled());
  const body = { items: [{ kind: "job", id: "job_1" }], reason: "only a try", dry_run: false };
  expect(edits()).toMatchObject([{ method: "POST", path: "/storage/deletions?project=lab", body }]);
});
