// The forest of a group in memory: columns of typed arrays, one entry per node shown, children as linked lists.
//
// Enters: pages of nodes (REST), rows of new nodes and growing answers (socket). Leaves: what layout and painting read.
// Invariants: the nodes of a session are taken in order, without a gap; roots with the same prompt are one node; a
// growing answer keeps its place when it is recorded. `structure` counts changes of shape, `content` all changes.
import type { Growing, TokenBuffer } from "./topic";
import { type ForestPage, type NodeRow, type SessionRow, turnMark } from "./wire";

export const ROOT = 0;
export const PROMPT = 1;
export const SAMPLED = 2;
export const NONE = -1;
export const UNKNOWN_VERSION = -1;
const PARTIAL_BIT = 8;
const HANDOVER_SHIFT = 4;
const FINISH_REASONS = ["", "stop", "length", "tool_calls", "abort"];
const FIRST_CAPACITY = 256;
/** Of an answer that still grows. */
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
  /** Of nodes with several versions: start, version, start, version, … */
  readonly spans = new Map<number, readonly number[]>();
  readonly handoverAt = new Map<number, readonly number[]>();
  /** Tokens that came over the socket. */
  readonly heard = new Map<number, { tokens: TokenBuffer; length: number }>();
  sessions: SessionRow[] = [];
  readonly #sessionPlace = new Map<string, number>();
  readonly #places: number[][] = [];
  readonly #rootOfPrompt = new Map<number, number>();
  readonly #growing = new Map<string, number>();
  readonly #growingPrompts = new Map<string, number>();
  readonly #numAdopted = new Map<string, number>();
  /** Turns that grow or grew here, by session and mark. */
  readonly #turnOfMark = new Map<string, string>();
  /** Marks of the turns whose answers are recorded, by session. */
  readonly #recorded: Set<number>[] = [];

  /** Rows replace those with their id; the order is that of their first appearance. */
  setSessions(rows: Iterable<SessionRow>): void {
    for (const row of rows) {
      const place = this.#sessionPlace.get(row.id) ?? this.sessions.length;
      if (this.sessions[place] === row) continue;
      if (place === this.sessions.length) this.#begin();
      this.#sessionPlace.set(row.id, place);
      this.sessions[place] = row;
      this.content++;
    }
  }

  #begin(): void {
    this.#places.push([]);
    this.#recorded.push(new Set());
  }

  sessionPlace(id: string): number {
    return this.#sessionPlace.get(id) ?? NONE;
  }

  /** The node shown for node `index` of a session. */
  nodeAt(session: number, index: number): number {
    return this.#places[session]?.[index] ?? NONE;
  }

  numKnown(session: number): number {
    return this.#places[session]?.length ?? 0;
  }

  /** Sessions that have more nodes than are known here. */
  lacking(): { session: SessionRow; from: number }[] {
    return this.sessions
      .map((session, place) => ({ session, from: this.numKnown(place) }))
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
    return ((this.state[node] as number) & GROWS) !== 0;
  }

  isGone(node: number): boolean {
    return ((this.state[node] as number) & GONE) !== 0;
  }

  isPartial(node: number): boolean {
    return ((this.marks[node] as number) & PARTIAL_BIT) !== 0;
  }

  numHandovers(node: number): number {
    return (this.marks[node] as number) >> HANDOVER_SHIFT;
  }

  finishReason(node: number): string {
    return FINISH_REASONS[(this.marks[node] as number) & (PARTIAL_BIT - 1)] ?? "";
  }

  /** The sampled advantage of a node's session; null while it has no outcome or for what was not sampled. */
  advantage(node: number): number | null {
    if (this.kind[node] !== SAMPLED) return null;
    return this.sessions[this.session[node] as number]?.advantage ?? null;
  }

  versionSpans(node: number): readonly number[] {
    const spans = this.spans.get(node);
    if (spans) return spans;
    return this.kind[node] === SAMPLED ? [0, this.minVersion[node] as number] : [];
  }

  *children(node: number): Generator<number> {
    for (let child = this.firstChild[node] as number; child !== NONE; child = this.nextSibling[child] as number) {
      if (!this.isGone(child)) yield child;
    }
  }

  addPage(page: ForestPage): void {
    this.setSessions(page.sessions);
    const places = page.sessions.map((session) => this.sessionPlace(session.id));
    const { columns } = page;
    this.#reserve(this.numNodes + page.numNodes);
    for (let row = 0; row < page.numNodes; row++) {
      const session = places[columns.session[row] as number] as number;
      const index = columns.index[row] as number;
      if (index !== this.numKnown(session)) continue;
      const above = columns.parent[row] as number;
      const facts = {
        parent: above < 0 ? NONE : this.nodeAt(session, above),
        session,
        index,
        kind: columns.kind[row] as number,
        numTokens: columns.num_tokens[row] as number,
        minVersion: columns.min_version[row] as number,
        maxVersion: columns.max_version[row] as number,
        meanLogprob: columns.mean_logprob[row] as number,
        marks: columns.marks[row] as number,
      };
      const mark = columns.turn[row] as number;
      this.#place(facts, columns.prompt[row] as number, this.#turnOfMark.get(`${session}/${mark}`));
      if (facts.kind === SAMPLED) this.#recorded[session]?.add(mark);
    }
    for (const [ordinal, index, spans, handoverAt] of page.details) {
      const node = this.nodeAt(places[ordinal] as number, index);
      if (node === NONE) continue;
      if (spans.length > 2) this.spans.set(node, spans);
      if (handoverAt.length) this.handoverAt.set(node, handoverAt);
    }
    this.content++;
  }

  /** A node recorded just now. One that does not follow is left: the session's row tells that it is lacking. */
  addRow(row: NodeRow): void {
    const session = this.sessionPlace(row.session);
    if (session === NONE || row.index !== this.numKnown(session)) return;
    const versions = row.spans.filter((_, place) => place % 2 === 1);
    const known = versions.filter((version) => version !== UNKNOWN_VERSION);
    const node = this.#place(
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

  /** All answers that grow now; those that are told no more and were not recorded disappear. */
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
    const session = this.sessionPlace(answer.session);
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
    const versions = answer.spans.filter((version, place) => place % 2 === 1 && version !== UNKNOWN_VERSION);
    this.numTokens[node] = answer.length;
    this.minVersion[node] = versions.length ? Math.min(...versions) : UNKNOWN_VERSION;
    this.maxVersion[node] = versions.length ? Math.max(...versions) : UNKNOWN_VERSION;
    this.marks[node] = answer.handoverAt.length << HANDOVER_SHIFT;
    if (answer.spans.length > 2) this.spans.set(node, answer.spans);
    if (answer.handoverAt.length) this.handoverAt.set(node, answer.handoverAt);
    this.heard.set(node, { tokens: answer.tokens, length: answer.length });
    this.content++;
  }

  /** The node that an answer hangs under: recorded, shared, or as young as the answer. */
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

  /** Where a recorded node is shown: the shared root, the place where it grew, or a new one. */
  #place(facts: NodeFacts, prompt: number, turn?: string): number {
    let node: number | undefined;
    if (facts.kind === ROOT) node = this.#rootOfPrompt.get(prompt);
    else if (turn !== undefined) node = this.#adopted(facts.kind, turn);
    if (node === undefined) node = this.#append(facts);
    else this.#record(node, facts);
    if (facts.kind === ROOT) this.#rootOfPrompt.set(prompt, node);
    (this.#places[facts.session] as number[]).push(node);
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
    if (!this.isGrowing(node)) return; // a shared root that an earlier session recorded
    this.state[node] = 0;
    this.session[node] = facts.session;
    this.index[node] = facts.index;
    this.numTokens[node] = facts.numTokens;
    this.minVersion[node] = facts.minVersion;
    this.maxVersion[node] = facts.maxVersion;
    this.meanLogprob[node] = facts.meanLogprob;
    this.marks[node] = facts.marks;
    const heard = this.heard.get(node);
    if (heard) this.heard.set(node, { tokens: heard.tokens, length: Math.min(heard.length, facts.numTokens) });
    this.structure++; // a stop string may have made it shorter
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
      const older = this.lastChild[facts.parent] as number;
      if (older === NONE) this.firstChild[facts.parent] = node;
      else this.nextSibling[older] = node;
      this.lastChild[facts.parent] = node;
    }
    this.structure++;
    return node;
  }

  #remove(node: number): void {
    this.state[node] = GONE;
    this.heard.delete(node);
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
  for (let place = 2; place < spans.length && (spans[place] as number) <= token; place += 2) {
    version = spans[place + 1] as number;
  }
  return version;
}

function grown<A extends Int32Array | Uint8Array | Float32Array>(old: A, next: A): A {
  next.set(old);
  return next;
}
