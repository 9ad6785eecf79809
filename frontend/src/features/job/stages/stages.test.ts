import { expect, test } from "vitest";
import type { JobEvent } from "../events/eventWords";
import { currentStage, stagesOf } from "./stages";

const SPEC = {
  algorithm: {
    stages: [
      { name: "math", until_update: 4, until_metric: null },
      { name: "code", until_metric: "reward/mean", at_least: 0.5, window: 3 },
      { name: "by hand", until_update: null },
      { name: "both" },
    ],
  },
};

function event(data: Record<string, unknown>, reason = "", kind = "job.stage"): JobEvent {
  return { id: 1, at: "", kind, subject_id: "", from_state: "", to_state: "", reason, author: "gateway", data };
}

test("each stage shows when it ends", () => {
  expect(stagesOf(SPEC).map(({ until }) => until)).toEqual([
    "until 4 updates are published",
    "until reward/mean averages at least 0.5 over 3 updates",
    "until switched manually",
    "until the job ends",
  ]);
  expect(stagesOf({ algorithm: { name: "grpo" } })).toEqual([]);
  expect(stagesOf(undefined)).toEqual([]);
});

test("a job starts in the first stage and is in the stage of its newest switch", () => {
  const stages = stagesOf(SPEC);
  expect(currentStage(stages, [])).toEqual({ name: "math", reason: "", asked: null });
  const events = [event({}, "", "job.state"), event({ from: "math", to: "code" }, "4 updates"), event({ to: "code" })];
  expect(currentStage(stages, events)).toEqual({ name: "code", reason: "4 updates", asked: null });
});

test("a request that has not taken effect yet is shown separately", () => {
  const events = [event({ to: "both" }, "enough"), event({ from: "math", to: "code" }, "4 updates")];
  expect(currentStage(stagesOf(SPEC), events)).toMatchObject({ name: "code", asked: "both" });
});
