import { describe, expect, it } from "vitest";
import type { Frame } from "../../live/frames";
import { session } from "./testing";
import { GROUP, groupReduce, LINGER_MS } from "./topic";

const packed = (ids: number[]) => btoa(String.fromCharCode(...new Uint8Array(new Int32Array(ids).buffer)));
const halves = (count: number) => btoa(String.fromCharCode(...new Uint8Array(2 * count)));
const frame = (data: Record<string, unknown>, at = 0, kind: Frame["kind"] = "delta"): Frame => ({
  v: 1,
  topic: "group:grp_1",
  epoch: "e",
  seq: 1,
  kind,
  at,
  data,
});
const gain = (start: number, ids: number[], changes = {}) => ({
  session: "a",
  turn: "t",
  choice: 0,
  start,
  token_ids: packed(ids),
  logprobs: halves(ids.length),
  spans: [0, 1],
  ...changes,
});
const start = groupReduce(GROUP.definition.initial, frame({ sessions: [session("a", 0)] }, 0, "snapshot"));
const tokensOf = (state: typeof start) => {
  const growing = state.growing.get("t/0");
  return growing ? [...growing.tokens.ids.subarray(0, growing.length)] : null;
};

describe("the topic of a group", () => {
  it("assembles growing answers even if parts arrive twice", () => {
    let state = groupReduce(start, frame({ growing: [gain(0, [1, 2])] }));
    state = groupReduce(state, frame({ growing: [gain(2, [3])] }));
    state = groupReduce(state, frame({ growing: [gain(0, [1, 2, 3])] }));
    expect(tokensOf(state)).toEqual([1, 2, 3]);
  });

  it("waits for the first token of an answer that began before the subscription", () => {
    const state = groupReduce(start, frame({ growing: [gain(7, [8])] }));
    expect(tokensOf(state)).toBeNull();
    expect(tokensOf(groupReduce(state, frame({ growing: [gain(0, [1])] })))).toEqual([1]);
  });

  it("does not change older states", () => {
    const older = groupReduce(start, frame({ growing: [gain(0, [1, 2])] }));
    const newer = groupReduce(
      older,
      frame({
        growing: [
          gain(
            2,
            Array.from({ length: 500 }, (_, n) => n),
          ),
        ],
      }),
    );
    expect(tokensOf(older)).toEqual([1, 2]);
    expect(tokensOf(newer)).toHaveLength(502);
  });

  it("replaces a recorded answer with its nodes in one step", () => {
    let state = groupReduce(start, frame({ growing: [gain(0, [1, 2])] }));
    state = groupReduce(state, frame({ growing: [gain(2, [3], { is_over: true, is_recorded: true })] }, 100));
    expect(tokensOf(state)).toEqual([1, 2, 3]);
    const node = { session: "a", index: 1, turn: "t" };
    state = groupReduce(state, frame({ nodes: [node] }, 200));
    expect(state.growing.size).toBe(0);
    expect(state.nodes.size).toBe(1);
  });

  it("soon drops a recorded answer even if its nodes come another way", () => {
    let state = groupReduce(
      start,
      frame({ growing: [gain(0, [1], {}), gain(1, [], { is_over: true, is_recorded: true })] }, 100),
    );
    expect(state.growing.size).toBe(1);
    state = groupReduce(state, frame({ sessions: [session("a", 0)] }, 101 + LINGER_MS));
    expect(state.growing.size).toBe(0);
  });

  it("starts over with a snapshot", () => {
    const grown = groupReduce(
      start,
      frame({ growing: [gain(0, [1])], nodes: [{ session: "a", index: 0, turn: "x" }] }),
    );
    const anew = groupReduce(grown, frame({ sessions: [] }, 0, "snapshot"));
    expect([anew.growing.size, anew.nodes.size, anew.numSnapshots]).toEqual([0, 0, 2]);
  });
});
