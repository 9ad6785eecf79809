// Reads the tokens of visible nodes in pages, a few requests at a time, and keeps a limited number of them.
//
// Enters: requests (node, range of tokens), repeated with every frame while they are needed. Leaves: chunks as they
// arrive.
import { intAt } from "../../values/columns";
import type { TokenPage } from "../wire/wire";
import type { Forest } from "./Forest";

export interface Chunk {
  /** The position of its first token in the node. */
  start: number;
  ids: Int32Array;
  logprobs: Float32Array;
}

export type LoadTokens = (session: string, node: number, start: number) => Promise<TokenPage>;

export const CHUNK_TOKENS = 4096;
const MAX_TOKENS_KEPT = 3_000_000;
const MAX_REQUESTS = 3;
const RETRY_MS = 5_000;

export interface Range {
  node: number;
  start: number;
  end: number;
}

interface TokenRequest {
  node: number;
  chunk: number;
}

export class TokenCache {
  readonly #forest: Forest;
  readonly #load: LoadTokens;
  readonly #onNews: () => void;
  readonly #chunks = new Map<string, Chunk>();
  readonly #failedAt = new Map<string, number>();
  #numTokens = 0;
  #requests: TokenRequest[] = [];
  #numRequests = 0;
  readonly #underway = new Set<string>();
  /** Why tokens could not be read. Cleared by the next successful read. */
  failure: string | null = null;

  constructor(forest: Forest, load: LoadTokens, onNews: () => void) {
    this.#forest = forest;
    this.#load = load;
    this.#onNews = onNews;
  }

  /** The chunks already here of a node's tokens from `start` to `end`, in order. */
  chunksOf(node: number, start: number, end: number): Chunk[] {
    const received = this.#forest.received.get(node);
    if (received && received.length >= Math.min(end, intAt(this.#forest.numTokens, node))) {
      const { ids, logprobs } = received.tokens;
      return [{ start: 0, ids: ids.subarray(0, received.length), logprobs: logprobs.subarray(0, received.length) }];
    }
    const found: Chunk[] = [];
    for (let chunk = Math.floor(start / CHUNK_TOKENS); chunk * CHUNK_TOKENS < end; chunk++) {
      const here = this.#chunks.get(key(node, chunk));
      if (here) found.push(here);
    }
    return found;
  }

  /** Replaces the requests of the canvas. Tokens that are here or on their way are not requested again. */
  request(ranges: Iterable<Range>): void {
    this.#requests = [];
    this.#add(ranges);
  }

  /** Adds a request to those of the canvas. */
  requestAlso(range: Range): void {
    this.#add([range]);
  }

  #add(ranges: Iterable<Range>): void {
    for (const { node, start, end } of ranges) {
      if (this.#forest.isGrowing(node)) continue;
      const last = Math.min(end, intAt(this.#forest.numTokens, node));
      for (let chunk = Math.floor(start / CHUNK_TOKENS); chunk * CHUNK_TOKENS < last; chunk++) {
        const name = key(node, chunk);
        if (!this.#chunks.has(name) && !this.#underway.has(name) && !this.#isBarred(name)) {
          this.#requests.push({ node, chunk });
        }
      }
    }
    this.#pump();
  }

  #isBarred(name: string): boolean {
    const at = this.#failedAt.get(name);
    return at !== undefined && Date.now() - at < RETRY_MS;
  }

  #pump(): void {
    while (this.#numRequests < MAX_REQUESTS) {
      const request = this.#requests.shift();
      if (!request) return;
      const name = key(request.node, request.chunk);
      if (this.#chunks.has(name) || this.#underway.has(name)) continue;
      this.#numRequests++;
      this.#underway.add(name);
      this.#ask(request)
        .catch((error: unknown) => this.#failed(name, error))
        .finally(() => {
          this.#numRequests--;
          this.#underway.delete(name);
          this.#pump();
        });
    }
  }

  #failed(name: string, error: unknown): void {
    this.#failedAt.set(name, Date.now());
    this.failure = error instanceof Error ? error.message : String(error);
    this.#onNews();
  }

  async #ask({ node, chunk }: TokenRequest): Promise<void> {
    const session = intAt(this.#forest.session, node);
    const row = this.#forest.sessions[session];
    if (!row) return;
    this.#take(session, await this.#load(row.id, intAt(this.#forest.index, node), chunk * CHUNK_TOKENS));
    this.failure = null;
    this.#onNews();
  }

  /** Keeps all chunks of a page: it also contains later tokens, often those of visible neighbours. */
  #take(session: number, page: TokenPage): void {
    let at = 0;
    for (const [index, start, count] of page.parts) {
      const node = this.#forest.nodeAt(session, index);
      for (let done = 0; done < count && node >= 0; ) {
        const first = start + done;
        const chunk = Math.floor(first / CHUNK_TOKENS);
        const size = Math.min((chunk + 1) * CHUNK_TOKENS - first, count - done);
        const isWholeChunk = first === chunk * CHUNK_TOKENS;
        const isEnd = first + size === intAt(this.#forest.numTokens, node);
        if (isWholeChunk && (size === CHUNK_TOKENS || isEnd)) {
          this.#keep(key(node, chunk), {
            start: first,
            ids: page.tokenIds.slice(at + done, at + done + size),
            logprobs: page.logprobs.slice(at + done, at + done + size),
          });
        }
        done += size;
      }
      at += count;
    }
  }

  #keep(name: string, chunk: Chunk): void {
    if (this.#chunks.has(name)) return;
    this.#chunks.set(name, chunk);
    this.#numTokens += chunk.ids.length;
    for (const [oldest, old] of this.#chunks) {
      if (this.#numTokens <= MAX_TOKENS_KEPT) break;
      this.#chunks.delete(oldest);
      this.#numTokens -= old.ids.length;
    }
  }
}

function key(node: number, chunk: number): string {
  return `${node}:${chunk}`;
}
