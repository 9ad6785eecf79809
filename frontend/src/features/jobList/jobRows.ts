// The rows of the jobs list: a page read over REST and kept current by the live topic. Pure.
import type { JobItem } from "../../api/queries";
import type { JobTimes } from "../../live/ran";
import type { JobRow } from "../../live/rows";
import type { JobsState } from "../../live/topics";

export type Point = readonly [update: number, reward: number];

export interface ListRow {
  id: string;
  name: string;
  project: string;
  owner: string | null;
  state: string;
  pausedBy: JobRow["paused_by"];
  why: string;
  numDone: number;
  numAll: number;
  curve: readonly Point[];
  /** Mean of the newest update. A point of the curve may stand for several updates. */
  reward: number | null;
  createdAt: number;
  times: JobTimes;
}

export const FILTERS = ["all", "active", "attention", "completed", "cancelled"] as const;
export type StateFilter = (typeof FILTERS)[number];
/** What each filter asks of the REST API. */
export const QUERY_OF: Readonly<Record<StateFilter, { state?: string; needs_attention?: boolean }>> = {
  all: {},
  active: { state: "queued,starting,running,pausing,paused,cancelling", needs_attention: false },
  attention: { needs_attention: true },
  completed: { state: "completed" },
  cancelled: { state: "cancelled" },
};
export const FILTER_WORDS: Readonly<Record<StateFilter, string>> = {
  all: "All",
  active: "Active",
  attention: "Needs attention",
  completed: "Completed",
  cancelled: "Cancelled",
};

export function listRows(page: readonly JobItem[], live: JobsState | undefined): ListRow[] {
  const kept = page.filter((item) => !live?.deleted.has(item.id));
  return kept.map((item) => {
    const row = live?.jobs.get(item.id);
    const known = curveOf(item);
    const newest = known.at(-1)?.[0] ?? 0;
    const news = (live?.rewards.get(item.id) ?? []).filter((reward) => reward.batch > newest);
    const curve = [...known, ...news.map((reward) => [reward.batch, reward.mean] as const)];
    const reward = news.at(-1)?.mean ?? item.progress.reward_mean ?? null;
    return row ? rowOfLive(row, curve, reward) : rowOfItem(item, curve, reward);
  });
}

/** Whether the live topic knows a job newer than any on the first page, so that the page must be read again. */
export function hasNewJobs(page: readonly JobItem[], live: JobsState | undefined): boolean {
  const newest = Math.max(0, ...page.map((item) => Date.parse(item.created_at)));
  const ids = new Set(page.map((item) => item.id));
  return [...(live?.jobs.values() ?? [])].some((row) => row.created_at > newest && !ids.has(row.id));
}

/** Whether the page shows a deleted job, so that it must be read again. */
export function hasDeletedJobs(page: readonly JobItem[], live: JobsState | undefined): boolean {
  return page.some((item) => live?.deleted.has(item.id));
}

function curveOf(item: JobItem): Point[] {
  return item.reward_curve.flatMap(([update, reward]): Point[] =>
    update === undefined || reward === undefined ? [] : [[update, reward]],
  );
}

/** Empty for a completed job: its progress bar already shows it. */
function whyText(job: { state: string; waiting_reason: string; state_reason: string }): string {
  return job.state === "completed" ? "" : job.waiting_reason || job.state_reason;
}

function rowOfLive(row: JobRow, curve: readonly Point[], reward: number | null): ListRow {
  return {
    id: row.id,
    name: row.name,
    project: row.project,
    owner: row.owner,
    state: row.state,
    pausedBy: row.paused_by,
    why: whyText(row),
    numDone: row.num_updates_done,
    numAll: row.num_updates,
    curve,
    reward,
    createdAt: row.created_at,
    times: row,
  };
}

function rowOfItem(item: JobItem, curve: readonly Point[], reward: number | null): ListRow {
  const msOf = (text: string | null) => (text === null ? null : Date.parse(text));
  return {
    id: item.id,
    name: item.name,
    project: item.project,
    owner: item.created_by ?? null,
    state: item.state,
    pausedBy: item.paused_by,
    why: whyText(item),
    numDone: item.progress.num_updates_done,
    numAll: item.progress.num_updates,
    curve,
    reward,
    createdAt: Date.parse(item.created_at),
    times: {
      started_at: msOf(item.started_at),
      ended_at: msOf(item.ended_at),
      paused_at: msOf(item.paused_at),
      paused_ms: item.paused_s * 1000,
    },
  };
}
