// The topic `group:<id>`: the group, its sessions, the nodes recorded since the snapshot and the growing answers.
//
// Enters: frames. Leaves: an immutable state. The tokens of a growing answer are in a buffer that is only appended to;
// a state sees its first `length` entries. A snapshot drops all growing answers, and the gateways send them again.
import type { Frame } from "../../live/frames";
import type { GroupInfoRow } from "../../live/rows";
import type { TopicDefinition } from "../../live/TopicStore";
import { type Table, tableOf, tableWith } from "../../live/tables";
import { type GrowingPrompt, type GrowingRow, growingTokens, type NodeRow, type SessionRow } from "./wire";

export interface Growing {
  key: string;
  session: string;
  turn: string;
  choice: number;
  parent: number | null;
  promptIndex: number | null;
  prompt: GrowingPrompt | null;
  tokens: TokenBuffer;
  length: number;
  spans: readonly number[];
  handoverAt: readonly number[];
  /** When its end was announced (server's clock), or null. */
  overAt: number | null;
  isRecorded: boolean;
}

export interface GroupTopicState {
  group: GroupInfoRow | undefined;
  sessions: Table<SessionRow>;
  /** By session and index. Nodes from before the snapshot are read over REST. */
  nodes: Table<NodeRow>;
  growing: ReadonlyMap<string, Growing>;
  numSnapshots: number;
}

/** Tokens and logprobs in buffers that grow. Several states use them, and each sees only its range. */
export class TokenBuffer {
  ids = new Int32Array(64);
  logprobs = new Float32Array(64);

  write(start: number, ids: Int32Array, logprobs: Float32Array): void {
    const end = start + ids.length;
    if (end > this.ids.length) {
      const size = 2 ** Math.ceil(Math.log2(end));
      const [olderIds, olderLogprobs] = [this.ids, this.logprobs];
      this.ids = new Int32Array(size);
      this.logprobs = new Float32Array(size);
      this.ids.set(olderIds);
      this.logprobs.set(olderLogprobs);
    }
    this.ids.set(ids, start);
    this.logprobs.set(logprobs, start);
  }
}

const EMPTY: GroupTopicState = {
  group: undefined,
  sessions: new Map(),
  nodes: new Map(),
  growing: new Map(),
  numSnapshots: 0,
};
/** A recorded answer stays until its nodes arrive, but no longer than this. */
export const LINGER_MS = 3_000;
/** An answer whose client left is resumed or recorded as partial within about a minute. */
export const LEFT_MS = 70_000;

interface GroupData {
  group?: GroupInfoRow;
  sessions?: SessionRow[];
  nodes?: NodeRow[];
  growing?: GrowingRow[];
}

export function groupReduce(state: GroupTopicState, frame: Frame): GroupTopicState {
  const data: GroupData = frame.data;
  if (frame.kind === "snapshot") {
    const sessions = tableOf(data.sessions, (row) => row.id);
    return { ...EMPTY, group: data.group, sessions, numSnapshots: state.numSnapshots + 1 };
  }
  return {
    group: data.group ?? state.group,
    sessions: tableWith(state.sessions, data.sessions, (row) => row.id),
    nodes: tableWith(state.nodes, data.nodes, (row) => `${row.session}/${row.index}`),
    growing: growingWith(state.growing, data, frame.at),
    numSnapshots: state.numSnapshots,
  };
}

function growingWith(growing: ReadonlyMap<string, Growing>, data: GroupData, now: number) {
  const recorded = new Set(data.nodes?.map((row) => row.turn));
  const isGone = (one: Growing) =>
    recorded.has(one.turn) || (one.overAt !== null && now - one.overAt > (one.isRecorded ? LINGER_MS : LEFT_MS));
  if (!data.growing?.length && ![...growing.values()].some(isGone)) return growing;
  const next = new Map([...growing].filter(([, one]) => !isGone(one)));
  for (const row of data.growing ?? []) {
    if (recorded.has(row.turn) || (row.is_over && !next.has(`${row.turn}/${row.choice}`))) continue;
    const key = `${row.turn}/${row.choice}`;
    const grown = grow(next.get(key), row, key, now);
    if (grown) next.set(key, grown);
  }
  return next;
}

function grow(known: Growing | undefined, row: GrowingRow, key: string, now: number): Growing | undefined {
  // Answers that began before this page subscribed are sent again from their first token. That also closes gaps.
  if (row.start > (known?.length ?? 0)) return known;
  const { tokenIds, logprobs } = growingTokens(row);
  const tokens = known?.tokens ?? new TokenBuffer();
  tokens.write(row.start, tokenIds, logprobs);
  return {
    key,
    session: row.session,
    turn: row.turn,
    choice: row.choice,
    parent: row.parent ?? null,
    promptIndex: row.prompt_index ?? known?.promptIndex ?? null,
    prompt: row.prompt ?? known?.prompt ?? null,
    tokens,
    length: row.start + tokenIds.length,
    spans: row.spans ?? [],
    handoverAt: row.handover_at ?? [],
    overAt: row.is_over ? now : null,
    isRecorded: row.is_recorded ?? false,
  };
}

const group: TopicDefinition<GroupTopicState> = { initial: EMPTY, reduce: groupReduce };

export const GROUP = { name: (groupId: string) => `group:${groupId}`, definition: group };
