// The forest of a group in memory: typed arrays with one entry per shown node, and children as linked lists.
//
// Enters: pages of nodes (REST), rows of new nodes and growing answers (socket). Leaves: the columns that layout and
// painting read. Invariants: a session's nodes are added in order, without gaps; roots with the same prompt are one
// node; a growing answer keeps its index when it is recorded. `structure` counts changes of shape, `content` all
// changes.
import { floatAt, intAt, itemAt, numberAt } from "../../values/columns";
import type { Growing, TokenBuffer } from "../wire/topic";
import { type ForestPage, type NodeRow, type SessionRow, turnMark } from "../wire/wire";

export const ROOT = 0;
export const PROMPT = 1;
export const SAMPLED = 2;
export const NONE = -1;
export const UNKNOWN_VERSION = -1;
const PARTIAL_BIT = 8;
const HANDOVER_SHIFT = 4;
const FINISH_REASONS = ["", "stop", "length", "tool_calls", "abort"];
const FIRST_CAPACITY = 256;
/** Flags of `state`: an answer that still grows, and one that disappeared. */
const GROWS = 1;
const GONE = 2;

interface NodeFacts {
  parent: number;
  session: number;
  index: number;
  kind: number;
  numTokens: number;
  minVersion: number;
  maxVersion: number;
  meanLogprob: number;
  marks: number;
}

export class Forest {
  numNodes = 0;
  numAlive = 0;
  structure = 0;
  content = 0;
  parent = new Int32Array(FIRST_CAPACITY);
  session = new Int32Array(FIRST_CAPACITY);
  index = new Int32Array(FIRST_CAPACITY);
  kind = new Uint8Array(FIRST_CAPACITY);
  numTokens = new Int32Array(FIRST_CAPACITY);
  minVersion = new Int32Array(FIRST_CAPACITY);
  maxVersion = new Int32Array(FIRST_CAPACITY);
  meanLogprob = new Float32Array(FIRST_CAPACITY);
  marks = new Int32Array(FIRST_CAPACITY);
  state = new Uint8Array(FIRST_CAPACITY);
  firstChild = new Int32Array(FIRST_CAPACITY);
  lastChild = new Int32Array(FIRST_CAPACITY);
  nextSibling = new Int32Array(FIRST_CAPACITY);
  readonly roots: number[] = [];
  /** For nodes sampled by several versions: start, version, start, version, … */
  readonly spans = new Map<number, readonly number[]>();
  readonly handoverAt = new Map<number, readonly number[]>();
  /** Tokens received over the socket. */
  readonly received = new Map<number, { tokens: TokenBuffer; length: number }>();
  sessions: SessionRow[] = [];
  readonly #sessionIndex = new Map<string, number>();
  readonly #nodesOf: number[][] = [];
  readonly #rootOfPrompt = new Map<number, number>();
  readonly #growing = new Map<string, number>();
  readonly #growingPrompts = new Map<string, number>();
  readonly #numAdopted = new Map<string, number>();
  /** Turns that are growing or have grown here, by session and mark. */
  readonly #turnOfMark = new Map<string, string>();
  /** Marks of turns with recorded answers, by session. */
  readonly #recorded: Set<number>[] = [];

  /** A row replaces the one with its id. Sessions keep the order of their first appearance. */
  setSessions(rows: Iterable<SessionRow>): void {
    for (const row of rows) {
      const position = this.#sessionIndex.get(row.id) ?? this.sessions.length;
      if (this.sessions[position] === row) continue;
      if (position === this.sessions.length) this.#begin();
      this.#sessionIndex.set(row.id, position);
      this.sessions[position] = row;
      this.content++;
    }
  }

  #begin(): void {
    this.#nodesOf.push([]);
    this.#recorded.push(new Set());
  }

  sessionIndex(id: string): number {
    return this.#sessionIndex.get(id) ?? NONE;
  }

  /** The shown node for node `index` of a session. */
  nodeAt(session: number, index: number): number {
    return this.#nodesOf[session]?.[index] ?? NONE;
  }

  numKnown(session: number): number {
    return this.#nodesOf[session]?.length ?? 0;
  }

  /** Sessions that have more nodes than are known here. */
  lacking(): { session: SessionRow; from: number }[] {
    return this.sessions
      .map((session, position) => ({ session, from: this.numKnown(position) }))
      .filter(({ session, from }) => session.num_nodes > from);
  }

  get numGrowing(): number {
    return this.#growing.size;
  }

  growingNode(key: string): number {
    return this.#growing.get(key) ?? NONE;
  }

  growingNodes(): Iterable<number> {
    return this.#growing.values();
  }

  isGrowing(node: number): boolean {
    return (numberAt(this.state, node) & GROWS) !== 0;
  }

  isGone(node: number): boolean {
    return (numberAt(this.state, node) & GONE) !== 0;
  }

  isPartial(node: number): boolean {
    return (intAt(this.marks, node) & PARTIAL_BIT) !== 0;
  }

  numHandovers(node: number): number {
    return intAt(this.marks, node) >> HANDOVER_SHIFT;
  }

  finishReason(node: number): string {
    return FINISH_REASONS[intAt(this.marks, node) & (PARTIAL_BIT - 1)] ?? "";
  }

  /** The advantage of a sampled node's session. Null until the session has an outcome, and for other nodes. */
  advantage(node: number): number | null {
    if (this.kind[node] !== SAMPLED) return null;
    return this.sessions[intAt(this.session, node)]?.advantage ?? null;
  }

  versionSpans(node: number): readonly number[] {
    const spans = this.spans.get(node);
    if (spans) return spans;
    return this.kind[node] === SAMPLED ? [0, intAt(this.minVersion, node)] : [];
  }

  *children(node: number): Generator<number> {
    for (let child = intAt(this.firstChild, node); child !== NONE; child = intAt(this.nextSibling, child)) {
      if (!this.isGone(child)) yield child;
    }
  }

  addPage(page: ForestPage): void {
    this.setSessions(page.sessions);
    const indices = page.sessions.map((session) => this.sessionIndex(session.id));
    const { columns } = page;
    this.#reserve(this.numNodes + page.numNodes);
    for (let row = 0; row < page.numNodes; row++) {
      const session = numberAt(indices, intAt(columns.session, row));
      const index = intAt(columns.index, row);
      if (index !== this.numKnown(session)) continue;
      const above = intAt(columns.parent, row);
      const facts = {
        parent: above < 0 ? NONE : this.nodeAt(session, above),
        session,
        index,
        kind: intAt(columns.kind, row),
        numTokens: intAt(columns.num_tokens, row),
        minVersion: intAt(columns.min_version, row),
        maxVersion: intAt(columns.max_version, row),
        meanLogprob: floatAt(columns.mean_logprob, row),
        marks: intAt(columns.marks, row),
      };
      const mark = intAt(columns.turn, row);
      this.#insert(facts, intAt(columns.prompt, row), this.#turnOfMark.get(`${session}/${mark}`));
      if (facts.kind === SAMPLED) this.#recorded[session]?.add(mark);
    }
    for (const [ordinal, index, spans, handoverAt] of page.details) {
      const node = this.nodeAt(numberAt(indices, ordinal), index);
      if (node === NONE) continue;
      if (spans.length > 2) this.spans.set(node, spans);
      if (handoverAt.length) this.handoverAt.set(node, handoverAt);
    }
    this.content++;
  }

  /**
   * Adds a newly recorded node. A node out of order is ignored, because the session's row shows that nodes are missing.
   */
  addRow(row: NodeRow): void {
    const session = this.sessionIndex(row.session);
    if (session === NONE || row.index !== this.numKnown(session)) return;
    const versions = row.spans.filter((_, position) => position % 2 === 1);
    const known = versions.filter((version) => version !== UNKNOWN_VERSION);
    const node = this.#insert(
      {
        parent: row.parent === null ? NONE : this.nodeAt(session, row.parent),
        session,
        index: row.index,
        kind: row.kind,
        numTokens: row.num_tokens,
        minVersion: known.length ? Math.min(...known) : UNKNOWN_VERSION,
        maxVersion: known.length ? Math.max(...known) : UNKNOWN_VERSION,
        meanLogprob: row.mean_logprob ?? Number.NaN,
        marks: row.marks,
      },
      row.prompt,
      row.turn,
    );
    if (row.kind === SAMPLED) this.#recorded[session]?.add(turnMark(row.turn));
    if (row.spans.length > 2) this.spans.set(node, row.spans);
    if (row.handover_at.length) this.handoverAt.set(node, row.handover_at);
    this.content++;
  }

  /** Takes all growing answers. An answer that is no longer in the map and was not recorded disappears. */
  setGrowing(growing: ReadonlyMap<string, Growing>): void {
    for (const answer of growing.values()) this.#grow(answer);
    for (const [key, node] of this.#growing) {
      if (!growing.has(key)) {
        this.#growing.delete(key);
        this.#remove(node);
      }
    }
    const turns = new Set([...growing.values()].map((answer) => answer.turn));
    for (const [turn, node] of this.#growingPrompts) {
      if (!turns.has(turn)) {
        this.#growingPrompts.delete(turn);
        if (this.children(node).next().done && this.isGrowing(node)) this.#remove(node);
      }
    }
  }

  #grow(answer: Growing): void {
    const session = this.sessionIndex(answer.session);
    if (session === NONE) return;
    const mark = turnMark(answer.turn);
    if (this.#recorded[session]?.has(mark)) return;
    this.#turnOfMark.set(`${session}/${mark}`, answer.turn);
    let node = this.#growing.get(answer.key);
    if (node === undefined) {
      const parent = this.#promptOf(answer, session);
      if (parent === NONE) return;
      node = this.#append({
        parent,
        session,
        index: NONE,
        kind: SAMPLED,
        numTokens: 0,
        minVersion: UNKNOWN_VERSION,
        maxVersion: UNKNOWN_VERSION,
        meanLogprob: Number.NaN,
        marks: 0,
      });
      this.state[node] = GROWS;
      this.#growing.set(answer.key, node);
    }
    const versions = answer.spans.filter((version, position) => position % 2 === 1 && version !== UNKNOWN_VERSION);
    this.numTokens[node] = answer.length;
    this.minVersion[node] = versions.length ? Math.min(...versions) : UNKNOWN_VERSION;
    this.maxVersion[node] = versions.length ? Math.max(...versions) : UNKNOWN_VERSION;
    this.marks[node] = answer.handoverAt.length << HANDOVER_SHIFT;
    if (answer.spans.length > 2) this.spans.set(node, answer.spans);
    if (answer.handoverAt.length) this.handoverAt.set(node, answer.handoverAt);
    this.received.set(node, { tokens: answer.tokens, length: answer.length });
    this.content++;
  }

  /** The parent of an answer: a recorded node, a common root, or a prompt that is growing too. */
  #promptOf(answer: Growing, session: number): number {
    if (answer.promptIndex !== null) return this.nodeAt(session, answer.promptIndex);
    const young = this.#growingPrompts.get(answer.turn);
    if (young !== undefined) return young;
    if (!answer.prompt) return NONE;
    const isRoot = answer.prompt.kind === "root";
    const shared = isRoot ? this.#rootOfPrompt.get(answer.prompt.prompt ?? 0) : undefined;
    const parent = answer.parent === null ? NONE : this.nodeAt(session, answer.parent);
    if (!isRoot && parent === NONE) return NONE;
    const node =
      shared ??
      this.#append({
        parent,
        session,
        index: NONE,
        kind: isRoot ? ROOT : PROMPT,
        numTokens: answer.prompt.num_tokens,
        minVersion: UNKNOWN_VERSION,
        maxVersion: UNKNOWN_VERSION,
        meanLogprob: Number.NaN,
        marks: 0,
      });
    if (shared === undefined) {
      this.state[node] = GROWS;
      if (isRoot) this.#rootOfPrompt.set(answer.prompt.prompt ?? 0, node);
    }
    this.#growingPrompts.set(answer.turn, node);
    return node;
  }

  /** The shown node of a recorded one: the common root, the node that grew, or a new one. */
  #insert(facts: NodeFacts, prompt: number, turn?: string): number {
    let node: number | undefined;
    if (facts.kind === ROOT) node = this.#rootOfPrompt.get(prompt);
    else if (turn !== undefined) node = this.#adopted(facts.kind, turn);
    if (node === undefined) node = this.#append(facts);
    else this.#record(node, facts);
    if (facts.kind === ROOT) this.#rootOfPrompt.set(prompt, node);
    itemAt(this.#nodesOf, facts.session).push(node);
    return node;
  }

  #adopted(kind: number, turn: string): number | undefined {
    if (kind === PROMPT) return this.#growingPrompts.get(turn);
    const choice = this.#numAdopted.get(turn) ?? 0;
    this.#numAdopted.set(turn, choice + 1);
    const key = `${turn}/${choice}`;
    const node = this.#growing.get(key);
    this.#growing.delete(key);
    return node;
  }

  #record(node: number, facts: NodeFacts): void {
    if (!this.isGrowing(node)) return; // a common root that an earlier session recorded
    this.state[node] = 0;
    this.session[node] = facts.session;
    this.index[node] = facts.index;
    this.numTokens[node] = facts.numTokens;
    this.minVersion[node] = facts.minVersion;
    this.maxVersion[node] = facts.maxVersion;
    this.meanLogprob[node] = facts.meanLogprob;
    this.marks[node] = facts.marks;
    const received = this.received.get(node);
    if (received)
      this.received.set(node, { tokens: received.tokens, length: Math.min(received.length, facts.numTokens) });
    this.structure++; // a stop string may have shortened it
  }

  #append(facts: NodeFacts): number {
    const node = this.numNodes;
    this.#reserve(node + 1);
    this.numNodes++;
    this.numAlive++;
    this.parent[node] = facts.parent;
    this.session[node] = facts.session;
    this.index[node] = facts.index;
    this.kind[node] = facts.kind;
    this.numTokens[node] = facts.numTokens;
    this.minVersion[node] = facts.minVersion;
    this.maxVersion[node] = facts.maxVersion;
    this.meanLogprob[node] = facts.meanLogprob;
    this.marks[node] = facts.marks;
    this.firstChild[node] = this.lastChild[node] = this.nextSibling[node] = NONE;
    if (facts.parent === NONE) this.roots.push(node);
    else {
      const older = intAt(this.lastChild, facts.parent);
      if (older === NONE) this.firstChild[facts.parent] = node;
      else this.nextSibling[older] = node;
      this.lastChild[facts.parent] = node;
    }
    this.structure++;
    return node;
  }

  #remove(node: number): void {
    this.state[node] = GONE;
    this.received.delete(node);
    this.numAlive--;
    this.structure++;
    for (const [prompt, root] of this.#rootOfPrompt) if (root === node) this.#rootOfPrompt.delete(prompt);
  }

  #reserve(size: number): void {
    if (size <= this.parent.length) return;
    const capacity = 2 ** Math.ceil(Math.log2(size));
    this.parent = grown(this.parent, new Int32Array(capacity));
    this.session = grown(this.session, new Int32Array(capacity));
    this.index = grown(this.index, new Int32Array(capacity));
    this.kind = grown(this.kind, new Uint8Array(capacity));
    this.numTokens = grown(this.numTokens, new Int32Array(capacity));
    this.minVersion = grown(this.minVersion, new Int32Array(capacity));
    this.maxVersion = grown(this.maxVersion, new Int32Array(capacity));
    this.meanLogprob = grown(this.meanLogprob, new Float32Array(capacity));
    this.marks = grown(this.marks, new Int32Array(capacity));
    this.state = grown(this.state, new Uint8Array(capacity));
    this.firstChild = grown(this.firstChild, new Int32Array(capacity));
    this.lastChild = grown(this.lastChild, new Int32Array(capacity));
    this.nextSibling = grown(this.nextSibling, new Int32Array(capacity));
  }
}

/** The version that sampled a token, from run-length spans. */
export function versionAt(spans: readonly number[], token: number): number {
  let version = spans[1] ?? UNKNOWN_VERSION;
  for (let position = 2; position < spans.length && numberAt(spans, position) <= token; position += 2) {
    version = numberAt(spans, position + 1);
  }
  return version;
}

function grown<A extends Int32Array | Uint8Array | Float32Array>(old: A, next: A): A {
  next.set(old);
  return next;
}
