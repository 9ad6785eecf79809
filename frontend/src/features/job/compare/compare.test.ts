import { expect, test } from "vitest";
import type { JobRow } from "../../../live/rows";
import { figuresOf, labelsOf, pairsOf, type Side, specDifferences } from "./compare";

const JOB = { id: "job_aaaaaa111111", name: "grpo", num_updates_done: 6, num_updates: 10 } as JobRow;

function side(label: string, rewards: number[], job: Partial<JobRow> = {}): Side {
  const points = { step: rewards.map((_, i) => i + 1), value: rewards };
  const times = { started_at: 0, ended_at: 120_000, best_version: null };
  return { label, job: { ...JOB, ...times, ...job }, metrics: new Map([["reward/mean", points]]) };
}

test("only differing fields of the specs are shown, at any depth", () => {
  const here = { name: "a", train: { learning_rate: 1e-5, lora: null }, algorithm: { name: "grpo" }, tags: ["x"] };
  const there = {
    name: "b",
    train: { learning_rate: 3e-4, lora: { rank: 8 } },
    algorithm: { name: "grpo" },
    tags: ["x"],
  };
  expect(specDifferences(here, there)).toEqual([
    { what: "train.learning_rate", here: "0.00001", there: "0.0003" },
    { what: "train.lora", here: "null", there: "–" },
    { what: "train.lora.rank", here: "–", there: "8" },
  ]);
});

test("jobs with the same name are distinguished by their IDs", () => {
  expect(labelsOf(JOB, { ...JOB, name: "sft" })).toEqual(["grpo", "sft"]);
  expect(labelsOf(JOB, { ...JOB, id: "job_aaaaaa222222" })).toEqual(["grpo (111111)", "grpo (222222)"]);
});

test("the reward is the mean of the last updates, and the pace counts to the end of the job or to now", () => {
  const here = side("a", [0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]);
  const there = side("b", [], { ended_at: null, num_updates_done: 0 });
  const wording = new Map(figuresOf(here, there, 60_000).map((row) => [row.what, [row.here, row.there]]));
  expect(wording.get("Updates")).toEqual(["6 of 10", "0 of 10"]);
  expect(wording.get("Mean reward of the newest updates")).toEqual(["0.500 over 5 updates", "–"]);
  expect(wording.get("Updates per minute, including pauses")).toEqual(["3", "–"]);
});

test("a chart has one line per job, in the same order even if a job lacks the metric, so that colours stay", () => {
  const { first } = pairsOf(side("a", [0.1, 0.2]), side("b", [0.3, 0.4, 0.5]));
  expect(first.map(({ title }) => title)).toEqual(["Reward"]);
  expect(first[0]?.data.x).toEqual([1, 2, 3]);
  expect(first[0]?.data.lines.map(({ label, values }) => [label, values])).toEqual([
    ["a", [0.1, 0.2, null]],
    ["b", [0.3, 0.4, 0.5]],
  ]);
  const lacking = pairsOf(side("a", []), side("b", [0.3])).first[0]?.data.lines ?? [];
  expect(lacking.map(({ label, values }) => [label, values])).toEqual([
    ["a", [null]],
    ["b", [0.3]],
  ]);
});
