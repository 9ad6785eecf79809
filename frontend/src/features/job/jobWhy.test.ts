import { expect, test } from "vitest";
import type { EventRow, JobRow, PhaseRow } from "../../live/rows";
import { shownState } from "../../ui/words/jobStates";
import { failedPhase, whyOf } from "./jobWhy";

const JOB = { state: "running", state_reason: "", waiting_reason: "", desired: "run", paused_by: null } as JobRow;

function request(id: number, to: string, reason: string): EventRow {
  return { id, at: 0, kind: "job.desired", from: "", to: "", reason, author: "user:olga", data: { to } };
}

test("a running job has nothing to explain", () => {
  expect(whyOf(JOB, [request(1, "run", "go on")])).toBeNull();
});

test("a paused job shows who paused it and the newest reason", () => {
  const paused: JobRow = { ...JOB, state: "paused", desired: "pause", waiting_reason: "paused by request" };
  const events = [
    request(1, "pause", "first time"),
    request(3, "pause", "the machines are needed"),
    request(2, "run", "go on"),
  ];
  expect(whyOf(paused, events)).toEqual({ title: "Paused by olga:", text: "the machines are needed", isBad: false });
  expect(whyOf(paused, [])?.title).toBe("Paused:");
  expect(whyOf(paused, [request(1, "pause", "")])?.text).toBe("no reason was given");
});

test("a pause by the platform is shown as a problem", () => {
  const paused: JobRow = { ...JOB, state: "pausing", desired: "pause", paused_by: "platform" };
  const own = { ...request(4, "pause", "8 groups in a row were dropped"), author: "platform" };
  expect(whyOf(paused, [request(1, "pause", "first time"), own])).toEqual({
    title: "Being paused by the platform:",
    text: "8 groups in a row were dropped",
    isBad: true,
  });
});

test("a job that is resumed before it has paused shows who resumed it, not who paused it", () => {
  const resumed: JobRow = { ...JOB, state: "pausing", desired: "run" };
  const own = { ...request(4, "pause", "it failed 6 times"), author: "platform" };
  expect(whyOf(resumed, [own, request(5, "run", "mended")])).toEqual({
    title: "Resumed by olga:",
    text: "mended; it goes on as soon as it has paused",
    isBad: false,
  });
  expect(whyOf(resumed, [own])?.text).toBe("it goes on as soon as it has paused");
});

test("a pause by the platform has its reason even while its events are not loaded", () => {
  const paused: JobRow = {
    ...JOB,
    state: "paused",
    desired: "pause",
    paused_by: "platform",
    state_reason: "it crashed",
  };
  expect(whyOf(paused, [])).toEqual({ title: "Paused by the platform:", text: "it crashed", isBad: true });
  expect(shownState(paused.state, paused.paused_by)).toBe("needs attention");
  expect(shownState("paused", "person")).toBe("paused");
});

test("the phase that failed last explains a failure", () => {
  const phases = [
    { id: "pha_1", state: "failed", ended_at: 5 },
    { id: "pha_2", state: "failed", ended_at: 9 },
    { id: "pha_3", state: "ended", ended_at: 12 },
  ] as PhaseRow[];
  expect(failedPhase(phases)?.id).toBe("pha_2");
});

test("a waiting job shows its reason", () => {
  const queued: JobRow = { ...JOB, state: "queued", waiting_reason: "no machine has the tags" };
  expect(whyOf(queued, [])).toEqual({ title: "Waiting:", text: "no machine has the tags", isBad: false });
});
