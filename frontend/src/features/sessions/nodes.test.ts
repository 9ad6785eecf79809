import { expect, it } from "vitest";
import { type NodeOutput, shownNodes } from "./nodes";

const node = (index: number, parent: number | null, changes: Partial<NodeOutput> = {}): NodeOutput =>
  ({
    node_index: index,
    parent_index: parent,
    kind: "sampled",
    messages: null,
    is_partial: false,
    num_handovers: 0,
    num_continuations: 0,
    drift: "clean",
    cause: null,
    max_gap_s: null,
    finish_reason: "stop",
    num_wasted_tokens: 0,
    ...changes,
  }) as NodeOutput;

it("orders nodes depth first and indents only at branches", () => {
  const shown = shownNodes([node(0, null), node(1, 0), node(2, 1), node(3, 1), node(4, 2)]);
  expect(shown.map(({ node: one, depth }) => [one.node_index, depth])).toEqual([
    [0, 0],
    [1, 0],
    [2, 1],
    [4, 1],
    [3, 1],
  ]);
});

it("indents the arguments of tool calls, and leaves text that is not JSON unchanged", () => {
  const calls = [
    { function: { name: "add", arguments: '{"a":1}' } },
    { function: { name: "say", arguments: "{broken" } },
  ];
  const [shown] = shownNodes([node(0, null, { messages: [{ role: "assistant", content: null, tool_calls: calls }] })]);
  expect(shown?.messages).toEqual([
    {
      role: "assistant",
      text: "",
      reasoning: "",
      calls: [
        { name: "add", arguments: '{\n  "a": 1\n}' },
        { name: "say", arguments: "{broken" },
      ],
    },
  ]);
});

it("marks anything unusual", () => {
  const [shown] = shownNodes([
    node(0, null, {
      is_partial: true,
      num_handovers: 2,
      num_continuations: 1,
      drift: "fork",
      cause: "edited",
      max_gap_s: 2,
    }),
  ]);
  expect(shown?.marks).toEqual([
    "partial, not used for training",
    "handed over 2×, continued 1×",
    "fork: edited",
    "largest gap 2.0 s",
  ]);
  expect(shownNodes([node(0, null)])[0]?.marks).toEqual([]);
});
