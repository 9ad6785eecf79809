import { expect, it } from "vitest";
import { type Frame, subscriptionOf } from "./frames";
import type { JobRow, MachineRow } from "./rows";
import { JOB, JOBS, MACHINES } from "./topics";

const frame = (topic: string, kind: Frame["kind"], names: string[]): Frame => {
  const pool = topic === "machines" ? "default" : topic.slice("machines:".length);
  const machines = names.map((name) => ({ name, pool }) as MachineRow);
  return { v: 1, topic, epoch: "e", seq: 1, kind, at: 0, data: { machines } };
};

it("keeps the machines of other pools when one pool sends a snapshot", () => {
  const { initial, reduce } = MACHINES.definition;
  let state = reduce(initial, frame("machines", "snapshot", ["alpha", "beta"]));
  state = reduce(state, frame("machines:gpu", "snapshot", ["gamma"]));
  state = reduce(state, frame("machines", "snapshot", ["alpha"]));

  expect([...state.machines.keys()].sort()).toEqual(["alpha", "gamma"]);
});

it("drops a machine that left its pool, unless its new pool was known before", () => {
  const { initial, reduce } = MACHINES.definition;
  const left = (topic: string, names: string[]): Frame => ({ ...frame(topic, "delta", []), data: { left: names } });
  const state = reduce(initial, frame("machines", "snapshot", ["alpha", "beta"]));

  expect([...reduce(state, left("machines", ["alpha"])).machines.keys()]).toEqual(["beta"]);
  const moved = reduce(state, frame("machines:gpu", "delta", ["alpha"]));
  expect([...reduce(moved, left("machines", ["alpha"])).machines.keys()].sort()).toEqual(["alpha", "beta"]);
});

it("maps the topics of all pools to one subscription", () => {
  expect(["machines", "machines:", "machines:gpu"].map(subscriptionOf)).toEqual(Array(3).fill("machines"));
});

it("drops a deleted job even if an older frame repeats it", () => {
  const frameOf = (data: Frame["data"]): Frame => ({
    v: 1,
    topic: "jobs:p",
    epoch: "e",
    seq: 1,
    kind: "delta",
    at: 0,
    data,
  });
  const { initial, reduce } = JOBS.definition;
  let state = reduce(initial, frameOf({ jobs: [{ id: "job_a" }, { id: "job_b" }] as JobRow[] }));
  state = reduce(state, frameOf({ deleted: ["job_a"] }));
  expect([...state.jobs.keys()]).toEqual(["job_b"]);
  state = reduce(state, frameOf({ jobs: [{ id: "job_a" }] as JobRow[] }));
  expect([...state.jobs.keys()]).toEqual(["job_b"]);
  expect(JOB.definition.reduce(JOB.definition.initial, frameOf({ deleted: ["job_a"] })).isDeleted).toBe(true);
});
