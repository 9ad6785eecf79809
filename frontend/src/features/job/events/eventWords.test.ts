import { expect, test } from "vitest";
import { shownId } from "../../../ui/words/shownId";
import { authorText, type JobEvent, outcomeOf, subjectText } from "./eventWords";

function event(kind: string, rest: Partial<JobEvent> = {}): JobEvent {
  const blank = {
    id: 1,
    at: "",
    subject_id: "",
    from_state: "",
    to_state: "",
    reason: "",
    author: "scheduler",
    data: {},
  };
  return { ...blank, kind, ...rest };
}

const machineOf = (id: string) => (id === "m-1" ? "beta" : undefined);

test("a phase event names its role and machine, whatever its author", () => {
  const move = { from_state: "active", to_state: "draining", data: { role: "rollout", machine_id: "m-1" } };
  expect(subjectText(event("phase.state", move), machineOf)).toBe("rollout on beta");
  const gone = { ...move, author: "machine:delta", data: { role: "train", machine_id: "m-2" } };
  expect(subjectText(event("phase.state", gone), machineOf)).toBe("train on delta");
  expect(subjectText(event("phase.state", { ...gone, author: "scheduler" }), machineOf)).toBe("train");
  expect(outcomeOf(event("phase.state", move))).toEqual({ from: "active", to: "draining" });
});

test("requests, stages and publications are put into words", () => {
  expect(outcomeOf(event("job.priority", { data: { from: 0, to: 5 } }))).toEqual({ wording: "priority 0 to 5" });
  expect(outcomeOf(event("job.desired", { data: { from: "run", to: "pause" } }))).toEqual({
    wording: "pause requested",
  });
  expect(outcomeOf(event("job.stage", { data: { from: "first", to: "second" } }))).toEqual({
    wording: "from stage first to second",
  });
  const published = event("version.published", { data: { version: 27 } });
  expect(subjectText(published, machineOf)).toBe("version 27");
  expect(outcomeOf(published)).toEqual({ wording: "published" });
});

test("a refused outcome is an event of its session", () => {
  const refused = event("session.outcome_refused", { author: "gateway" });
  expect(subjectText(refused, machineOf)).toBe("session");
  expect(outcomeOf(refused)).toEqual({ wording: "second outcome refused" });
});

test("an unknown kind is shown unchanged", () => {
  expect(subjectText(event("disk.full"), machineOf)).toBe("disk.full");
});

test("an author is shown by name if there is one", () => {
  expect(["user:olga", "machine:beta", "phase:01a2021c-dde4", "scheduler"].map(authorText)).toEqual([
    "olga",
    "beta",
    "trainer",
    "scheduler",
  ]);
});

test("an ID looks the same as on the server", () => {
  expect(shownId("mac", "01a2021b-3b56-7784-b89e-5326c920df28")).toBe("mac_01m811petpey2bh7jk4v4j1qs8");
});
