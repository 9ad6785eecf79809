// Decodes bytes from the platform: pages of nodes, pages of tokens, the vocabulary and growing answers. Pure.
//
// A binary response is a uint32 length, a JSON header padded to a multiple of four bytes, and little-endian arrays,
// which are viewed without a copy. The Python side is control_plane/trajectories/binary.py and forest_apis.py.

import type { GrowingPrompt as FullPrompt, GrowingAnswer, NodeRow, SessionRow } from "../../live/rows";

export type { NodeRow, SessionRow };

/** Where the prompt begins is left out while it is 0. */
export type GrowingPrompt = Omit<FullPrompt, "prompt"> & Partial<Pick<FullPrompt, "prompt">>;

/**
 * The tokens that an answer gained. `start` is absolute, so applying a row twice changes nothing. Fields with their
 * default are left out.
 */
export type GrowingRow = Pick<GrowingAnswer, "session" | "turn" | "choice" | "start"> &
  Partial<Omit<GrowingAnswer, "prompt">> & { prompt?: GrowingPrompt | null };

export const FOREST_COLUMNS = [
  "session",
  "index",
  "parent",
  "kind",
  "num_tokens",
  "min_version",
  "max_version",
  "prompt",
  "turn",
  "marks",
  "mean_logprob",
] as const;
export type ForestColumn = (typeof FOREST_COLUMNS)[number];

/** The spans and hand-overs of a node that has several spans or any hand-over. */
export type NodeDetail = [session: number, index: number, spans: number[], handoverAt: number[]];

export interface ForestPage {
  job: string;
  sessions: SessionRow[];
  numNodes: number;
  columns: Record<Exclude<ForestColumn, "mean_logprob">, Int32Array> & { mean_logprob: Float32Array };
  details: NodeDetail[];
  next: { session: string; node: number } | null;
}

export interface TokenPage {
  parts: [node: number, start: number, count: number][];
  tokenIds: Int32Array;
  logprobs: Float32Array;
  next: [node: number, start: number] | null;
}

export class UnreadableAnswer extends Error {}

function headerOf<Header>(raw: ArrayBuffer): { header: Header; offset: number } {
  if (raw.byteLength < 4) throw new UnreadableAnswer(`a binary response of ${raw.byteLength} bytes has no header`);
  const length = new DataView(raw).getUint32(0, true);
  if (4 + length > raw.byteLength) throw new UnreadableAnswer("a binary response ends within its header");
  // The platform that serves this page wrote the header, so its shape is trusted.
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, length))) as Header;
  return { header, offset: 4 + length };
}

interface ForestHeader {
  job: string;
  sessions: SessionRow[];
  num_nodes: number;
  columns: string[];
  details: NodeDetail[];
  next: { session: string; node: number } | null;
}

export function forestPageDecode(raw: ArrayBuffer): ForestPage {
  const { header, offset } = headerOf<ForestHeader>(raw);
  const count = header.num_nodes;
  const at = (name: ForestColumn) => {
    const index = header.columns.indexOf(name);
    if (index < 0) throw new UnreadableAnswer(`a page of nodes lacks the column ${name}`);
    return offset + 4 * count * index;
  };
  const ints = (name: ForestColumn) => new Int32Array(raw, at(name), count);
  return {
    job: header.job,
    sessions: header.sessions,
    numNodes: count,
    columns: {
      session: ints("session"),
      index: ints("index"),
      parent: ints("parent"),
      kind: ints("kind"),
      num_tokens: ints("num_tokens"),
      min_version: ints("min_version"),
      max_version: ints("max_version"),
      prompt: ints("prompt"),
      turn: ints("turn"),
      marks: ints("marks"),
      mean_logprob: new Float32Array(raw, at("mean_logprob"), count),
    },
    details: header.details,
    next: header.next,
  };
}

export function tokenPageDecode(raw: ArrayBuffer): TokenPage {
  const { header, offset } = headerOf<Pick<TokenPage, "parts" | "next">>(raw);
  const count = header.parts.reduce((sum, [, , size]) => sum + size, 0);
  return {
    parts: header.parts,
    next: header.next,
    tokenIds: new Int32Array(raw, offset, count),
    logprobs: new Float32Array(raw, offset + 4 * count, count),
  };
}

/** The bytes of all tokens; those of token `id` end at `ends[id]`. */
export function vocabularyDecode(raw: ArrayBuffer): { ends: Uint32Array; bytes: Uint8Array } {
  const { header, offset } = headerOf<{ num_tokens: number }>(raw);
  const ends = new Uint32Array(raw, offset, header.num_tokens);
  return { ends, bytes: new Uint8Array(raw, offset + 4 * header.num_tokens) };
}

/** The name of a turn in pages of nodes: the last four bytes of its identifier. */
export function turnMark(turn: string): number {
  return Number.parseInt(turn.slice(-8), 16) | 0;
}

function bytesOf(base64: string | undefined): Uint8Array<ArrayBuffer> {
  const text = atob(base64 ?? "");
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

export function growingTokens(row: GrowingRow): { tokenIds: Int32Array; logprobs: Float32Array } {
  return {
    tokenIds: new Int32Array(bytesOf(row.token_ids).buffer),
    logprobs: halvesToFloats(new Uint16Array(bytesOf(row.logprobs).buffer)),
  };
}

/** Converts IEEE 754 binary16 to numbers. */
export function halvesToFloats(halves: Uint16Array): Float32Array {
  return Float32Array.from(halves, (half) => {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    if (exponent === 0) return sign * 2 ** -14 * (fraction / 1024);
    if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
    return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
  });
}
