// Keeps the forest of a group current: reads pages over REST first, then follows the socket, and reads gaps again.
//
// Enters: states of the topic `group:<id>`. Leaves: the forest, and a call to listeners whenever something changed.
import { problemOf } from "../../api/client";
import type { GroupTopicState } from "../wire/topic";
import { Vocabulary } from "../wire/Vocabulary";
import { type ForestPage, forestPageDecode, type TokenPage, tokenPageDecode } from "../wire/wire";
import { Forest } from "./Forest";
import { TokenCache } from "./TokenCache";

/** Few enough that the first page arrives at once, and enough that thousands of nodes take one request. */
const PAGE_NODES = 50_000;
const RETRY_MS = 3_000;

export class ForestSource {
  readonly forest = new Forest();
  readonly tokens: TokenCache;
  vocabulary: Vocabulary | null = null;
  isLoaded = false;
  failure: string | null = null;
  revision = 0;
  readonly #groupId: string;
  readonly #listeners = new Set<() => void>();
  #state: GroupTopicState | undefined;
  #isReading = false;
  #askedFor: string | null = null;
  #isStopped = false;
  #retry: ReturnType<typeof setTimeout> | undefined;

  constructor(groupId: string) {
    this.#groupId = groupId;
    this.tokens = new TokenCache(this.forest, readTokens, () => this.#changed());
  }

  start(): void {
    this.#isStopped = false;
    if (!this.isLoaded) void this.#read("");
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#retry);
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  take(state: GroupTopicState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.#apply();
  }

  #apply(): void {
    const state = this.#state;
    if (!state || !this.isLoaded) return;
    this.forest.setSessions(state.sessions.values());
    for (const row of state.nodes.values()) this.forest.addRow(row);
    this.forest.setGrowing(state.growing);
    this.#changed();
    const [lacking] = this.forest.lacking();
    if (!lacking) return;
    const cursor = `&session=${lacking.session.id}&node=${lacking.from}`;
    // The last read did not return these nodes: the session's row arrived before they were stored.
    if (cursor === this.#askedFor) this.#later(cursor);
    else void this.#read(cursor);
  }

  /** Reads pages from a cursor to the end of the forest. */
  async #read(from: string): Promise<void> {
    if (this.#isReading || this.#isStopped) return;
    this.#isReading = true;
    try {
      for (let cursor: string | null = from; cursor !== null && !this.#isStopped; ) {
        this.#askedFor = cursor;
        const page = await readPage(this.#groupId, cursor);
        this.forest.addPage(page);
        if (!this.vocabulary) void this.#readVocabulary(page.job);
        this.isLoaded = true;
        this.failure = null;
        cursor = page.next && `&session=${page.next.session}&node=${page.next.node}`;
        this.#changed();
      }
    } catch (error) {
      this.failure = error instanceof Error ? error.message : String(error);
      this.#later(from);
      this.#changed();
    } finally {
      this.#isReading = false;
    }
    // Apply the frames that the socket sent while the pages were read.
    if (!this.failure) this.#apply();
  }

  #later(cursor: string): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#read(cursor), RETRY_MS);
  }

  async #readVocabulary(job: string): Promise<void> {
    try {
      this.vocabulary = new Vocabulary(await readBytes(`/api/v1/jobs/${job}/vocabulary`));
      this.#changed();
    } catch (error) {
      // Without the model's folder, tokens are shown as ids. The messages still show the text.
      console.info(`showing token ids instead of text: ${error instanceof Error ? error.message : error}`);
    }
  }

  #changed(): void {
    this.revision++;
    for (const listener of this.#listeners) listener();
  }
}

async function readBytes(address: string): Promise<ArrayBuffer> {
  const answer = await fetch(address);
  if (!answer.ok) throw problemOf(answer.status, await answer.json().catch(() => null));
  return answer.arrayBuffer();
}

async function readPage(groupId: string, cursor: string): Promise<ForestPage> {
  return forestPageDecode(await readBytes(`/api/v1/groups/${groupId}/forest?limit=${PAGE_NODES}${cursor}`));
}

async function readTokens(session: string, node: number, start: number): Promise<TokenPage> {
  return tokenPageDecode(await readBytes(`/api/v1/sessions/${session}/tokens?node=${node}&start=${start}`));
}
