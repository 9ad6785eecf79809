// Shares one socket among all components: `useTopic` returns a topic's state, `useLine` the connection status, and
// `useServerNow` the server's time.
import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from "react";
import { queryClient } from "../api/queries";
import { type LineStatus, LiveClient, type SocketLike } from "./LiveClient";
import { type TopicDefinition, TopicStore } from "./TopicStore";
import { MACHINES } from "./topics";

const WATCH_MS = 500;

interface Live {
  client: LiveClient;
  topics: TopicStore;
}

function after(ms: number, act: () => void): () => void {
  const timer = setTimeout(act, ms);
  return () => clearTimeout(timer);
}

function openSocket(): SocketLike {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}/ws/live`);
  const like: SocketLike = {
    onopen: null,
    onmessage: null,
    onclose: null,
    send: (text) => socket.send(text),
    close: () => socket.close(),
  };
  socket.onopen = () => like.onopen?.();
  socket.onmessage = (event) => like.onmessage?.(event);
  socket.onclose = (event) => like.onclose?.(event);
  return like;
}

function liveMake(): Live {
  const client = new LiveClient({
    open: openSocket,
    now: () => Date.now(),
    after,
    // The user may no longer be allowed to see earlier rows.
    accessNarrowed: () => void queryClient.resetQueries(),
  });
  return { client, topics: new TopicStore(client, after) };
}

const LiveContext = createContext<Live | null>(null);

function useLive(): Live {
  const live = useContext(LiveContext);
  if (!live) throw new Error("LiveProvider is missing");
  return live;
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const [live] = useState(liveMake);
  useEffect(() => {
    // Always subscribe to machines, because silence on that topic means that this page is behind.
    const leave = live.topics.watch(MACHINES.name, MACHINES.definition, () => {});
    live.client.connect();
    const timer = setInterval(() => live.client.watch(), WATCH_MS);
    return () => {
      clearInterval(timer);
      leave();
      live.client.close();
    };
  }, [live]);
  return <LiveContext value={live}>{children}</LiveContext>;
}

/** The current state of a topic; undefined before its snapshot. `definition` must be a constant. */
export function useTopic<State>(name: string, definition: TopicDefinition<State>): State | undefined {
  const { topics } = useLive();
  const watch = useCallback((reader: () => void) => topics.watch(name, definition, reader), [topics, name, definition]);
  return useSyncExternalStore(watch, () => topics.read<State>(name));
}

export function useLine(): LineStatus {
  const { client } = useLive();
  return useSyncExternalStore(client.onStatus, () => client.status);
}

/** Returns the server's clock, in milliseconds, as a function. It does not render anything by itself. */
export function useServerClock(): () => number {
  const { client } = useLive();
  return useCallback(() => client.serverNow(), [client]);
}

/** The server's time, updated every `everyMs`. */
export function useServerNow(everyMs = 1000): number {
  const clock = useServerClock();
  const [now, setNow] = useState(clock);
  useEffect(() => {
    const timer = setInterval(() => setNow(clock()), everyMs);
    return () => clearInterval(timer);
  }, [clock, everyMs]);
  return now;
}
