import { describe, expect, it } from "vitest";
import { intAt } from "../../values/columns";
import { session } from "../wire/testing";
import { type Growing, TokenBuffer } from "../wire/topic";
import { type ForestPage, type NodeRow, turnMark } from "../wire/wire";
import { Forest, NONE, ROOT, SAMPLED, versionAt } from "./Forest";

const TURN = "01a2000d-b66b-78eb-ba78-e8e5590055f0";

const growing = (changes: Partial<Growing> = {}): Growing => ({
  key: "t/0",
  session: "a",
  turn: "t",
  choice: 0,
  parent: null,
  promptIndex: null,
  prompt: { kind: "root", num_tokens: 12, messages: [], prompt: 9 },
  tokens: new TokenBuffer(),
  length: 4,
  spans: [0, 3, 2, 4],
  handoverAt: [2],
  overAt: null,
  isRecorded: false,
  ...changes,
});
const growingOf = (...answers: Growing[]) => new Map(answers.map((answer) => [answer.key, answer]));
const row = (changes: Partial<NodeRow>): NodeRow => ({
  session: "a",
  index: 0,
  parent: null,
  kind: ROOT,
  num_tokens: 12,
  spans: [],
  mean_logprob: null,
  marks: 0,
  handover_at: [],
  turn: "t",
  prompt: 9,
  ...changes,
});

function forestMake(): Forest {
  const forest = new Forest();
  forest.setSessions([session("a", 0), session("b", 1)]);
  return forest;
}

describe("a growing forest", () => {
  it("shows an answer under its prompt as it grows, with versions and hand-overs", () => {
    const forest = forestMake();
    forest.setGrowing(growingOf(growing()));
    const answer = forest.growingNode("t/0");
    expect(forest.numTokens[answer]).toBe(4);
    expect(forest.versionSpans(answer)).toEqual([0, 3, 2, 4]);
    expect([forest.minVersion[answer], forest.maxVersion[answer], forest.numHandovers(answer)]).toEqual([3, 4, 1]);
    expect(forest.kind[intAt(forest.parent, answer)]).toBe(ROOT);
    forest.setGrowing(growingOf(growing({ length: 9 })));
    expect(forest.numTokens[answer]).toBe(9);
    expect(forest.numAlive).toBe(2);
  });

  it("keeps an answer at its index when it is recorded", () => {
    const forest = forestMake();
    forest.setGrowing(growingOf(growing()));
    const answer = forest.growingNode("t/0");
    forest.addRow(row({}));
    forest.addRow(row({ index: 1, parent: 0, kind: SAMPLED, num_tokens: 3, spans: [0, 3], marks: 1 }));
    forest.setGrowing(new Map());
    expect(forest.nodeAt(0, 1)).toBe(answer);
    expect(forest.isGrowing(answer)).toBe(false);
    expect(forest.numTokens[answer]).toBe(3);
    expect(forest.numAlive).toBe(2);
    expect(forest.received.get(answer)?.length).toBe(3);
  });

  it("shows a prompt of several sessions once, growing or recorded", () => {
    const forest = forestMake();
    forest.addRow(row({}));
    forest.addRow(row({ session: "b", turn: "u" }));
    expect(forest.roots).toEqual([0]);
    forest.setGrowing(growingOf(growing({ key: "v/0", turn: "v", session: "b" })));
    expect(forest.parent[forest.growingNode("v/0")]).toBe(0);
  });

  it("drops abandoned answers, and prompts that have no answers left", () => {
    const forest = forestMake();
    forest.setGrowing(growingOf(growing()));
    forest.setGrowing(new Map());
    expect(forest.numAlive).toBe(0);
    forest.setGrowing(growingOf(growing()));
    expect(forest.numAlive).toBe(2);
  });

  it("adds a session's nodes in order and reports missing ones", () => {
    const forest = forestMake();
    forest.setSessions([session("a", 0, { num_nodes: 3 })]);
    forest.addRow(row({ index: 1, parent: 0, kind: SAMPLED }));
    expect(forest.numNodes).toBe(0);
    expect(forest.lacking().map(({ session: one, from }) => [one.id, from])).toEqual([["a", 0]]);
    forest.addRow(row({}));
    forest.addRow(row({}));
    expect(forest.numKnown(0)).toBe(1);
  });

  it("puts two answers to one request under the same prompt", () => {
    const forest = forestMake();
    forest.setGrowing(growingOf(growing(), growing({ key: "t/1", choice: 1 })));
    const [first, second] = [forest.growingNode("t/0"), forest.growingNode("t/1")];
    expect(forest.parent[first]).toBe(forest.parent[second]);
    forest.addRow(row({}));
    forest.addRow(row({ index: 1, parent: 0, kind: SAMPLED }));
    forest.addRow(row({ index: 2, parent: 0, kind: SAMPLED }));
    expect([forest.nodeAt(0, 1), forest.nodeAt(0, 2)]).toEqual([first, second]);
  });

  it("recognises a recorded answer in a page of nodes, whether the page or the growing answer comes first", () => {
    const page = (): ForestPage => ({
      job: "job_1",
      sessions: [session("a", 0, { num_nodes: 2 })],
      numNodes: 2,
      columns: {
        session: new Int32Array([0, 0]),
        index: new Int32Array([0, 1]),
        parent: new Int32Array([-1, 0]),
        kind: new Int32Array([ROOT, SAMPLED]),
        num_tokens: new Int32Array([12, 5]),
        min_version: new Int32Array([-1, 3]),
        max_version: new Int32Array([-1, 3]),
        prompt: new Int32Array([9, 0]),
        turn: new Int32Array([turnMark(TURN), turnMark(TURN)]),
        marks: new Int32Array([0, 1]),
        mean_logprob: new Float32Array([Number.NaN, -0.5]),
      },
      details: [],
      next: null,
    });
    const grows = growingOf(growing({ key: `${TURN}/0`, turn: TURN }));
    const first = forestMake();
    first.setGrowing(grows);
    const node = first.growingNode(`${TURN}/0`);
    first.addPage(page());
    expect(first.nodeAt(0, 1)).toBe(node);
    const second = forestMake();
    second.addPage(page());
    second.setGrowing(grows);
    for (const forest of [first, second]) {
      forest.setGrowing(grows);
      expect([forest.numAlive, forest.numGrowing]).toEqual([2, 0]);
    }
  });

  it("does not show an answer until its prompt is known", () => {
    const forest = forestMake();
    forest.setGrowing(growingOf(growing({ promptIndex: 5, prompt: null })));
    expect(forest.growingNode("t/0")).toBe(NONE);
  });
});

describe("version spans", () => {
  it("give the version of each token", () => {
    expect([0, 9, 10, 11].map((token) => versionAt([0, 3, 10, 4], token))).toEqual([3, 3, 4, 4]);
    expect(versionAt([], 0)).toBe(-1);
  });
});
