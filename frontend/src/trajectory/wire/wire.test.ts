import { describe, expect, it } from "vitest";
import { shownMessage } from "./messages";
import { Vocabulary } from "./Vocabulary";
import { forestPageDecode, growingTokens, halvesToFloats, tokenPageDecode, UnreadableAnswer } from "./wire";

function binary(header: object, ...arrays: ArrayBufferView[]): ArrayBuffer {
  let text = JSON.stringify(header);
  text += " ".repeat((4 - (new TextEncoder().encode(text).length % 4)) % 4);
  const encoded = new TextEncoder().encode(text);
  const parts = [
    new Uint8Array(new Uint32Array([encoded.length]).buffer),
    encoded,
    ...arrays.map((a) => new Uint8Array(a.buffer)),
  ];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

describe("a binary response", () => {
  it("gives the columns of a page by name, whatever their order", () => {
    const columns = [
      "index",
      "session",
      "parent",
      "kind",
      "num_tokens",
      "min_version",
      "max_version",
      "prompt",
      "turn",
      "marks",
      "mean_logprob",
    ];
    const raw = binary(
      { job: "job_1", sessions: [], num_nodes: 2, columns, details: [], next: null },
      new Int32Array([0, 1]),
      new Int32Array([5, 5]),
      new Int32Array([-1, 0]),
      new Int32Array(14),
      new Float32Array([Number.NaN, -0.5]),
    );
    const page = forestPageDecode(raw);
    expect([...page.columns.session]).toEqual([5, 5]);
    expect([...page.columns.index]).toEqual([0, 1]);
    expect(page.columns.mean_logprob[1]).toBe(-0.5);
  });

  it("is refused if it is truncated or lacks a column", () => {
    expect(() => forestPageDecode(new ArrayBuffer(2))).toThrow(UnreadableAnswer);
    expect(() => forestPageDecode(new Uint32Array([4000]).buffer)).toThrow(UnreadableAnswer);
    expect(() => forestPageDecode(binary({ num_nodes: 0, columns: [], sessions: [] }))).toThrow(/lacks the column/);
  });

  it("gives tokens with their logprobs", () => {
    const page = tokenPageDecode(
      binary({ parts: [[3, 0, 2]], next: null }, new Int32Array([7, 8]), new Float32Array([-1, -2])),
    );
    expect([[...page.tokenIds], [...page.logprobs]]).toEqual([
      [7, 8],
      [-1, -2],
    ]);
  });
});

describe("a growing answer", () => {
  it("is decoded from packed ids and half-precision logprobs", () => {
    const ids = btoa(String.fromCharCode(...new Uint8Array(new Int32Array([1, 300]).buffer)));
    const halves = btoa(String.fromCharCode(...new Uint8Array(new Uint16Array([0xb800, 0xc000]).buffer)));
    const { tokenIds, logprobs } = growingTokens({
      session: "s",
      turn: "t",
      choice: 0,
      start: 0,
      token_ids: ids,
      logprobs: halves,
    });
    expect([[...tokenIds], [...logprobs]]).toEqual([
      [1, 300],
      [-0.5, -2],
    ]);
  });

  it("may contain the special values of binary16", () => {
    const numbers = halvesToFloats(new Uint16Array([0, 0x3c00, 0xfc00, 0x7e00, 0x0001]));
    expect([...numbers]).toEqual([0, 1, Number.NEGATIVE_INFINITY, Number.NaN, 2 ** -24]);
  });
});

describe("a vocabulary", () => {
  const pieces = ["Hi", " you", "\n", "", ""].map((text) => new TextEncoder().encode(text));
  pieces[3] = new Uint8Array([0xf0, 0x9f]);
  pieces[4] = new Uint8Array([0x99, 0x82]);
  let end = 0;
  const ends = new Uint32Array(pieces.map((piece) => (end += piece.length)));
  const bytes = new Uint8Array(pieces.flatMap((piece) => [...piece]));
  const vocabulary = new Vocabulary(binary({ num_tokens: 5 }, ends, bytes));

  it("decodes tokens, including those that contain some bytes of a character", () => {
    expect(vocabulary.text(new Int32Array([0, 1, 3, 4]))).toBe("Hi you🙂");
    expect([1, 2, 3, 99].map((id) => vocabulary.label(id))).toEqual(["·you", "↵", "\\xf0\\x9f", "#99"]);
  });
});

describe("a message", () => {
  it("shows its reasoning, content and tool calls separately", () => {
    const call = { id: "c", type: "function", function: { name: "calc", arguments: '{"a":1}' } };
    const shown = shownMessage({ role: "assistant", content: null, reasoning_content: "hm", tool_calls: [call] });
    expect(shown).toEqual({
      role: "assistant",
      reasoning: "hm",
      content: "",
      callId: "",
      calls: [{ name: "calc", arguments: '{\n  "a": 1\n}' }],
    });
    expect(
      shownMessage({
        role: "user",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      }).content,
    ).toBe("a\nb");
    expect(shownMessage({ role: "tool", content: "3", tool_call_id: "c" }).callId).toBe("c");
  });
});
