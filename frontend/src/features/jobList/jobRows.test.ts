import { expect, it } from "vitest";
import type { JobItem } from "../../api/queries";
import type { JobRow } from "../../live/rows";
import { NO_JOBS } from "../../live/topics";
import { hasDeletedJobs, hasNewJobs, listRows } from "./jobRows";

const item: JobItem = {
  id: "job_a",
  name: "one",
  project: "default",
  created_by: "alice",
  state: "running",
  state_reason: "",
  paused_by: null,
  waiting_reason: "",
  desired: "run",
  generation: 1,
  priority: 0,
  latest_version: 2,
  num_tasks: null,
  progress: { num_updates_done: 2, num_updates: 10, reward_mean: 0.5 },
  reward_curve: [
    [1, 0.25],
    [2, 0.5],
  ],
  created_at: "2026-01-01T00:00:10Z",
  started_at: null,
  ended_at: null,
  paused_at: null,
  paused_s: 0,
  duration_s: null,
};

const live = {
  id: "job_a",
  name: "one",
  state: "running",
  waiting_reason: "no machine",
  state_reason: "",
  num_updates_done: 4,
  num_updates: 10,
  created_at: Date.parse("2026-01-01T00:00:10Z"),
} as JobRow;

const reward = (batch: number, mean: number) => ({
  batch,
  mean,
  low: 0,
  high: 0,
  num_groups: 4,
  tokens: 9,
  turns: 1,
  at: 0,
});

it("shows the page's data until the live topic has newer data", () => {
  expect(listRows([item], undefined)[0]).toMatchObject({ numDone: 2, owner: "alice", times: { started_at: null } });
  const [row] = listRows([item], { ...NO_JOBS, jobs: new Map([["job_a", live]]) });
  expect(row).toMatchObject({ numDone: 4, why: "no machine" });
});

it("shows the reward of the newest update, not of the curve's last point, which may average several", () => {
  const thinned = { ...item, reward_curve: [[50, 0.1]], progress: { ...item.progress, reward_mean: 0.9 } };
  expect(listRows([thinned], undefined)[0]?.reward).toBe(0.9);
});

it("extends the curve with newer rewards only", () => {
  const rewards = new Map([["job_a", [reward(2, 0.5), reward(3, 0.75)]]]);
  const [row] = listRows([item], { ...NO_JOBS, rewards });
  expect(row?.reward).toBe(0.75);
  expect(row?.curve).toEqual([
    [1, 0.25],
    [2, 0.5],
    [3, 0.75],
  ]);
});

it("notices a job submitted after the page was read", () => {
  const jobs = (id: string, created_at: number) => ({
    ...NO_JOBS,
    jobs: new Map([[id, { ...live, id, created_at }]]),
  });
  expect(hasNewJobs([item], jobs("job_b", Date.parse("2026-01-01T00:00:11Z")))).toBe(true);
  expect(hasNewJobs([item], jobs("job_b", Date.parse("2026-01-01T00:00:09Z")))).toBe(false);
  expect(hasNewJobs([item], jobs("job_a", Date.parse("2026-01-01T00:00:10Z")))).toBe(false);
});

it("hides a job deleted after the page was read", () => {
  const state = { ...NO_JOBS, deleted: new Set(["job_a"]) };
  expect(listRows([item], state)).toEqual([]);
  expect(hasDeletedJobs([item], state)).toBe(true);
  expect(hasDeletedJobs([item], NO_JOBS)).toBe(false);
});
