import { expect, it } from "vitest";
import type { PhaseRow } from "../../../live/rows";
import { pageOf, withLive } from "./phaseRows";

const AT = Date.parse("2026-01-01T00:00:00Z");
const stored = (id: string, minute: number, changes: Record<string, unknown> = {}) => ({
  id,
  machine: "alpha",
  machine_id: "mac_1",
  role: "train" as const,
  state: "ended" as const,
  reason: "",
  fence: minute,
  desired_version: 0,
  served_version: null,
  engines: [],
  num_batches: null,
  gang_member: null,
  leased_at: new Date(AT + minute * 60_000).toISOString(),
  active_at: null,
  draining_at: null,
  ended_at: new Date(AT + minute * 60_000 + 1000).toISOString(),
  ...changes,
});
const live = (id: string, minute: number, isOver: boolean) =>
  ({
    id,
    leased_at: AT + minute * 60_000,
    ended_at: isOver ? AT : null,
    state: isOver ? "failed" : "active",
  }) as PhaseRow;

it("starts the first page with all phases that have not ended, and shows each phase once", () => {
  const table = new Map([
    ["old", live("old", 0, false)],
    ["b", live("b", 2, true)],
  ]);
  const page = [stored("c", 3), stored("b", 2), stored("a", 1)];
  expect(pageOf(page, table, 0).map(({ id, state }) => `${id} ${state}`)).toEqual([
    "old active",
    "c ended",
    "b failed",
    "a ended",
  ]);
  expect(pageOf(page, table, 50).map(({ id }) => id)).toEqual(["c", "b", "a"]);
});

it("merges the phases read over REST with those from the socket", () => {
  const table = new Map([["new", live("new", 9, false)]]);
  expect(withLive([stored("a", 1)], table).map(({ id, ended_at }) => [id, ended_at])).toEqual([
    ["a", AT + 61_000],
    ["new", null],
  ]);
});
