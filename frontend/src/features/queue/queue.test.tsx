import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { edits, pageOf, Refusal, show } from "../../api/testing";
import QueuePage from "./QueuePage";

vi.mock("../../live/LiveProvider", () => ({ useTopic: () => undefined }));

const HOLDER = { machine_id: "mac_1", job_id: null, job_name: null, until: "quantum", within_s: 360 };
const OFFER = { may_do: true, num_stopped_jobs: 0, within_s: null, at_most_s: null, pool: "", tags: [], value: null };
const WAITING = {
  job_id: "job_1",
  job_name: "calculator-h200",
  project: "default",
  state: "queued",
  created_by: "ann",
  generation: 4,
  priority: 0,
  may_edit: true,
  place: 1,
  waiting_s: 260,
  lack: "floor",
  sentence: "It begins as soon as it has a machine for everything that it needs.",
  shortages: [
    {
      role: "rollout",
      num_machines: 1,
      tags: ["rollout"],
      num_fitting: 2,
      sentence: "It lacks 1 machine to roll out, with the tag rollout.",
      holders: [
        { ...HOLDER, machine: "m1", sentence: "m1 works for the job essays.", job_id: "job_2", job_name: "essays" },
        { ...HOLDER, machine: "m2", machine_id: "mac_2", sentence: "m2 works for a job of another project." },
      ],
    },
  ],
  unblocks: [
    { ...OFFER, kind: "retag", sentence: "Give alpha the tag gpu.", machine_id: "mac_3", tags: ["gpu"] },
    { ...OFFER, kind: "wait", sentence: "Wait: its turn comes in 6 min.", machine_id: null },
    { ...OFFER, kind: "priority", sentence: "Raise its priority from 0 to 1.", machine_id: null, value: 1 },
  ],
};
const AT_WORK = {
  ...WAITING,
  job_id: "job_2",
  job_name: "essays",
  state: "running",
  place: null,
  waiting_s: 0,
  lack: "engines",
  may_edit: false,
  sentence: "It is at work and could use more machines that roll out.",
  shortages: [],
  unblocks: [],
};
const ME = { username: "ann", is_staff: true, projects: [], scopes: [] };

async function showQueue(rest = {}) {
  show(<QueuePage />, { at: "/queue", given: { "GET /me": ME, "GET /queue": pageOf([WAITING, AT_WORK]), ...rest } });
  return within(await screen.findByTestId("queue")).getAllByRole("region");
}

it("shows what each job lacks, who has it, and what is cheapest", async () => {
  const [first, last] = await showQueue();
  if (!first || !last) throw new Error("there are two jobs");
  expect(first.textContent).toContain("waits for 4 min 20 s");
  expect(first.textContent).toContain("m2 works for a job of another project.");
  expect(within(first).getByRole("link", { name: "Open the job essays" }).getAttribute("href")).toBe("/jobs/job_2");
  const offers = within(first)
    .getAllByRole("listitem")
    .map((item) => item.textContent);
  expect(offers.filter((text) => text?.includes("Cheapest"))).toEqual([
    expect.stringContaining("Give alpha the tag gpu"),
  ]);
  expect(within(first).getByRole("link", { name: "Retag…" }).getAttribute("href")).toBe("/machines?edit=mac_3&add=gpu");
  expect(last.textContent).toContain("At work");
  expect(within(last).queryByRole("button")).toBeNull();
});

it("raises a priority on the generation that was seen", async () => {
  await showQueue({ "PATCH /jobs/job_1": { id: "job_1" } });
  fireEvent.click(screen.getByRole("button", { name: "Raise…" }));
  const dialog = within(screen.getByRole("dialog"));
  const priority = dialog.getByRole<HTMLInputElement>("textbox", { name: "Priority (-100 to 100)" });
  expect(priority.value).toBe("1");
  fireEvent.change(priority, { target: { value: "101" } });
  expect(dialog.getByRole("button", { name: "Set the priority" })).toHaveProperty("disabled", true);
  fireEvent.change(priority, { target: { value: "3" } });
  fireEvent.change(dialog.getByRole("textbox", { name: "Reason" }), { target: { value: "a deadline" } });
  fireEvent.click(dialog.getByRole("button", { name: "Set the priority" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(edits()).toMatchObject([
    { method: "PATCH", path: "/jobs/job_1", generation: '"4"', body: { priority: 3, reason: "a deadline" } },
  ]);
});

it("keeps the dialog with the platform's words if another person changed the job", async () => {
  await showQueue({ "PATCH /jobs/job_1": new Refusal(412, { detail: "The job was changed meanwhile." }) });
  fireEvent.click(screen.getByRole("button", { name: "Raise…" }));
  fireEvent.click(screen.getByRole("button", { name: "Set the priority" }));
  expect(await screen.findByRole("alert")).toHaveProperty("textContent", "The job was changed meanwhile.");
  expect(screen.getByRole("dialog")).toBeTruthy();
});

it("says so when no job waits", async () => {
  show(<QueuePage />, { given: { "GET /me": ME, "GET /queue": pageOf([]) } });
  expect(await screen.findByRole("heading", { name: "No job waits" })).toBeTruthy();
});
