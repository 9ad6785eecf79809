// The state of each subscribed topic, for all components that look at it.
//
// A topic definition turns frames into state. It must be pure and return a new object when something changed. State is
// kept briefly after the last reader leaves, so that moving between pages needs no new snapshot.
import type { Frame } from "./frames";
import type { LiveClient } from "./LiveClient";

export interface TopicDefinition<State> {
  initial: State;
  reduce: (state: State, frame: Frame) => State;
}

interface Entry {
  /**
   * Its type depends on the topic's name. One map has the entries of all topics, so reading a state back needs a
   * cast.
   */
  state: unknown;
  /** False until the first snapshot. */
  isLoaded: boolean;
  readers: Set<() => void>;
  leave: () => void;
  forget: () => void;
}

const LINGER_MS = 5_000;

export class TopicStore {
  readonly #client: LiveClient;
  readonly #after: (ms: number, act: () => void) => () => void;
  readonly #entries = new Map<string, Entry>();

  constructor(client: LiveClient, after: (ms: number, act: () => void) => () => void) {
    this.#client = client;
    this.#after = after;
  }

  /** The state, or undefined before the first snapshot. */
  read<State>(name: string): State | undefined {
    const entry = this.#entries.get(name);
    return entry?.isLoaded ? (entry.state as State) : undefined;
  }

  /** Keeps a topic alive and reports its changes until the returned function is called. */
  watch<State>(name: string, definition: TopicDefinition<State>, reader: () => void): () => void {
    const entry = this.#entries.get(name) ?? this.#open(name, definition);
    entry.forget();
    entry.readers.add(reader);
    return () => {
      entry.readers.delete(reader);
      if (entry.readers.size === 0) entry.forget = this.#after(LINGER_MS, () => this.#close(name, entry));
    };
  }

  #open<State>(name: string, definition: TopicDefinition<State>): Entry {
    const entry: Entry = {
      state: definition.initial,
      isLoaded: false,
      readers: new Set(),
      leave: () => {},
      forget: () => {},
    };
    this.#entries.set(name, entry);
    entry.leave = this.#client.subscribe(name, (frame) => {
      const state = definition.reduce(entry.state as State, frame);
      const isNews = state !== entry.state || !entry.isLoaded;
      entry.state = state;
      entry.isLoaded ||= frame.kind === "snapshot";
      if (isNews) for (const reader of [...entry.readers]) reader();
    });
    return entry;
  }

  #close(name: string, entry: Entry): void {
    if (entry.readers.size > 0) return;
    entry.leave();
    this.#entries.delete(name);
  }
}
