import { describe, expect, it } from "vitest";
import { actionOf, lackText, type Offer, placeText, signatureOf } from "./queueRows";

const OFFER: Offer = {
  kind: "wait",
  sentence: "",
  may_do: true,
  num_stopped_jobs: 0,
  within_s: null,
  at_most_s: null,
  machine_id: null,
  tags: [],
  value: null,
  pool: "",
};

describe("an offer of the queue", () => {
  it("leads to the machine with the tags to add", () => {
    const offer: Offer = { ...OFFER, kind: "retag", machine_id: "mac_1", tags: ["rollout", "gpu=h200"] };
    expect(actionOf(offer)).toEqual({
      to: "/machines?edit=mac_1&add=rollout%2Cgpu%3Dh200",
      word: "Retag…",
    });
  });

  it("opens the priority with the value that was tried", () => {
    expect(actionOf({ ...OFFER, kind: "priority", value: 3 })).toEqual({ priority: 3, word: "Raise…" });
  });

  it("leads to the shares, where operators raise quotas and grant pools", () => {
    expect(actionOf({ ...OFFER, kind: "quota", value: 3 })).toEqual({ to: "/shares", word: "Open shares" });
  });

  it("has no action if the reader may not do it, or if it is to wait", () => {
    expect(actionOf({ ...OFFER, kind: "priority", value: 3, may_do: false })).toBeNull();
    expect(actionOf(OFFER)).toBeNull();
  });
});

it("says the position of a job, or that it is at work", () => {
  expect(placeText({ place: 2, lack: "floor" })).toBe("2.");
  expect(placeText({ place: null, lack: "engines" })).toBe("At work");
  expect(lackText("turn")).toBe("waits to train");
});

it("notices a job that begins to wait, and ignores one that never did", () => {
  const runs = { id: "a", state: "running", waiting_reason: "" };
  const waits = { id: "b", state: "queued", waiting_reason: "no machine" };
  expect(signatureOf([runs])).toBe(signatureOf([]));
  expect(signatureOf([runs, waits])).not.toBe(signatureOf([runs]));
  expect(signatureOf([waits])).not.toBe(signatureOf([{ ...waits, waiting_reason: "another reason" }]));
});
