// One websocket for the whole page. Enters: subscriptions by name. Leaves: frames to their listeners, and a status.
//
// States of the line: connecting -> live -> (lost -> connecting)*; signed_out is final. While the line is live, the
// server may report that its own source is behind. A delta that does not follow its predecessor is dropped and its
// topic is requested again, so a listener sees a snapshot and then every later delta, without a gap.
import { numberAt } from "../values/columns";
import { type Frame, type Position, subscriptionOf } from "./frames";

export type Listener = (frame: Frame) => void;
export type LineState = "connecting" | "live" | "held_up" | "silent" | "lost" | "signed_out";

export interface LineStatus {
  state: LineState;
  /** Whole seconds since the newest frame. */
  behindS: number;
  /** The server's refusal, if any. */
  detail: string;
}

export interface SocketLike {
  onopen: (() => void) | null;
  onmessage: ((event: { data: string }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  send(text: string): void;
  close(): void;
}

export interface Dependencies {
  open: () => SocketLike;
  now: () => number;
  after: (ms: number, act: () => void) => () => void;
  /** Called when the server closes the socket because the user may see less than before. */
  accessNarrowed?: () => void;
}

const RETRY_MS = [300, 1000, 2000, 5000, 10_000];
// The server sends something on `machines` every five seconds, so silence means that something is stuck.
export const SILENT_MS = 12_000;
const DEAD_MS = 25_000;
const SIGNED_OUT_CODE = 4401;
const FORBIDDEN_CODE = 4403;

export class LiveClient {
  readonly #world: Dependencies;
  readonly #listeners = new Map<string, Listener>();
  readonly #positions = new Map<string, Position>();
  readonly #statusListeners = new Set<() => void>();
  #socket: SocketLike | null = null;
  #isOpen = false;
  #numRetries = 0;
  #receivedAt: number;
  #openedAt: number;
  #clockOffset = 0;
  #status: LineStatus = { state: "connecting", behindS: 0, detail: "" };
  #isHeldUp = false;
  #stopRetry: () => void = () => {};

  constructor(world: Dependencies) {
    this.#world = world;
    this.#receivedAt = this.#openedAt = world.now();
  }

  /** Milliseconds of the server's clock. */
  serverNow(): number {
    return this.#world.now() + this.#clockOffset;
  }

  get status(): LineStatus {
    return this.#status;
  }

  onStatus = (listener: () => void): (() => void) => {
    this.#statusListeners.add(listener);
    return () => this.#statusListeners.delete(listener);
  };

  connect(): void {
    const socket = this.#world.open();
    this.#socket = socket;
    socket.onopen = () => this.#opened();
    // A message has one frame per line. The platform that serves this page wrote it, so its shape is trusted.
    socket.onmessage = (event) => {
      for (const line of event.data.split("\n")) this.#hear(JSON.parse(line) as Frame);
    };
    socket.onclose = (event) => {
      if (socket === this.#socket) this.#closed(event.code);
    };
  }

  close(): void {
    const socket = this.#socket;
    this.#socket = null;
    this.#isOpen = false;
    this.#stopRetry();
    socket?.close();
  }

  /** Frames of a subscription: a snapshot first, then every delta. A name has one listener, which keeps its state. */
  subscribe(name: string, listener: Listener): () => void {
    this.#listeners.set(name, listener);
    this.#send({ subscribe: [name] });
    return () => {
      this.#listeners.delete(name);
      for (const topic of [...this.#positions.keys()]) {
        if (subscriptionOf(topic) === name) this.#positions.delete(topic);
      }
      this.#send({ unsubscribe: [name] });
    };
  }

  /** Checks for silence. Call it about twice a second. */
  watch(): void {
    const silentMs = this.#world.now() - this.#receivedAt;
    if (this.#isOpen && this.#world.now() - Math.max(this.#receivedAt, this.#openedAt) > DEAD_MS) this.#socket?.close();
    if (this.#isOpen) this.#show(this.#isHeldUp ? "held_up" : silentMs > SILENT_MS ? "silent" : "live");
    else this.#show(this.#status.state);
  }

  #opened(): void {
    this.#isOpen = true;
    this.#isHeldUp = false;
    this.#numRetries = 0;
    this.#openedAt = this.#world.now();
    const since = Object.fromEntries(this.#positions);
    this.#socket?.send(JSON.stringify({ subscribe: [...this.#listeners.keys()], since }));
    this.#show("live");
  }

  #closed(code: number): void {
    this.#isOpen = false;
    if (code === SIGNED_OUT_CODE) return this.#show("signed_out");
    if (code === FORBIDDEN_CODE) this.#world.accessNarrowed?.();
    this.#show("lost");
    const delay = numberAt(RETRY_MS, Math.min(this.#numRetries++, RETRY_MS.length - 1));
    this.#stopRetry = this.#world.after(delay, () => this.connect());
  }

  #hear(frame: Frame): void {
    if (frame.kind === "notice") {
      this.#isHeldUp = frame.data.code === "behind";
      return this.watch();
    }
    if (frame.kind === "error") return this.#show(this.#status.state, String(frame.data.detail));
    this.#receivedAt = this.#world.now();
    this.#clockOffset = frame.at - this.#receivedAt;
    const name = subscriptionOf(frame.topic);
    if (frame.kind === "delta" && !this.#follows(frame)) return this.#resync(frame.topic, name);
    this.#positions.set(frame.topic, [frame.epoch, frame.seq]);
    this.#listeners.get(name)?.(frame);
  }

  #follows(frame: Frame): boolean {
    const position = this.#positions.get(frame.topic);
    return position !== undefined && position[0] === frame.epoch && position[1] + 1 === frame.seq;
  }

  #resync(topic: string, name: string): void {
    // The position is unknown until the snapshot arrives, so later deltas also end here and are dropped.
    if (!this.#positions.delete(topic)) return;
    this.#send({ unsubscribe: [name] });
    this.#send({ subscribe: [name] });
  }

  #send(message: object): void {
    if (this.#isOpen) this.#socket?.send(JSON.stringify(message));
  }

  #show(state: LineState, detail = ""): void {
    const behindS = Math.round((this.#world.now() - this.#receivedAt) / 1000);
    const old = this.#status;
    if (old.state === state && old.behindS === behindS && old.detail === detail) return;
    this.#status = { state, behindS, detail };
    for (const listener of this.#statusListeners) listener();
  }
}
