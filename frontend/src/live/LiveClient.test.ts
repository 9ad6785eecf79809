import { describe, expect, it } from "vitest";
import { itemAt } from "../values/columns";
import type { Frame } from "./frames";
import { LiveClient, SILENT_MS, type SocketLike } from "./LiveClient";

class FakeSocket implements SocketLike {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  readonly sent: Record<string, unknown>[] = [];

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.drop(1000);
  }

  drop(code: number): void {
    this.onclose?.({ code });
  }

  say(frame: Partial<Frame>): void {
    this.onmessage?.({ data: JSON.stringify({ v: 1, epoch: "e", at: 0, data: {}, ...frame }) });
  }
}

class World {
  readonly sockets: FakeSocket[] = [];
  readonly waiting: { at: number; act: () => void }[] = [];
  time = 0;
  numNarrowed = 0;

  accessNarrowed = (): void => {
    this.numNarrowed++;
  };

  open = (): SocketLike => {
    const socket = new FakeSocket();
    this.sockets.push(socket);
    return socket;
  };

  now = (): number => this.time;

  after = (ms: number, act: () => void): (() => void) => {
    const entry = { at: this.time + ms, act };
    this.waiting.push(entry);
    return () => this.waiting.splice(this.waiting.indexOf(entry), 1);
  };

  pass(ms: number): void {
    this.time += ms;
    for (const entry of this.waiting.filter((one) => one.at <= this.time)) {
      this.waiting.splice(this.waiting.indexOf(entry), 1);
      entry.act();
    }
  }

  get socket(): FakeSocket {
    return itemAt(this.sockets, this.sockets.length - 1);
  }
}

function connected() {
  const world = new World();
  const client = new LiveClient(world);
  const received: Frame[] = [];
  const leave = client.subscribe("job:a", (frame) => received.push(frame));
  client.connect();
  world.socket.onopen?.();
  return { world, client, received, leave };
}

describe("LiveClient", () => {
  it("subscribes to everything once the socket is open", () => {
    const { world, client } = connected();
    expect(world.socket.sent).toEqual([{ subscribe: ["job:a"], since: {} }]);
    client.subscribe("machines", () => {});
    expect(world.socket.sent.at(-1)).toEqual({ subscribe: ["machines"] });
  });

  it("passes a snapshot and the deltas after it to the listener", () => {
    const { world, received } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    world.socket.say({ topic: "job:a", seq: 5, kind: "delta" });
    expect(received.map((frame) => frame.seq)).toEqual([4, 5]);
  });

  it("requests a snapshot after a gap, and drops deltas until it arrives", () => {
    const { world, received } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    world.socket.say({ topic: "job:a", seq: 6, kind: "delta" });
    world.socket.say({ topic: "job:a", seq: 7, kind: "delta" });
    expect(world.socket.sent.slice(1)).toEqual([{ unsubscribe: ["job:a"] }, { subscribe: ["job:a"] }]);
    world.socket.say({ topic: "job:a", seq: 7, kind: "snapshot" });
    world.socket.say({ topic: "job:a", seq: 8, kind: "delta" });
    expect(received.map((frame) => frame.seq)).toEqual([4, 7, 8]);
  });

  it("treats a delta of another epoch as a gap", () => {
    const { world, received } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    world.socket.say({ topic: "job:a", seq: 5, kind: "delta", epoch: "later" });
    expect(received).toHaveLength(1);
    expect(world.socket.sent.at(-1)).toEqual({ subscribe: ["job:a"] });
  });

  it("reconnects with growing delays and reports how far it had read", () => {
    const { world, client, received } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    world.socket.drop(1006);
    expect(client.status.state).toBe("lost");
    world.pass(300);
    expect(world.sockets).toHaveLength(2);
    world.socket.drop(1006);
    world.pass(300);
    expect(world.sockets).toHaveLength(2);
    world.pass(700);
    expect(world.sockets).toHaveLength(3);
    world.socket.onopen?.();
    expect(world.socket.sent).toEqual([{ subscribe: ["job:a"], since: { "job:a": ["e", 4] } }]);
    world.socket.say({ topic: "job:a", seq: 5, kind: "delta" });
    expect(received.map((frame) => frame.seq)).toEqual([4, 5]);
    expect(client.status.state).toBe("live");
  });

  it("reports how far it is behind while disconnected", () => {
    const { world, client } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    world.socket.drop(1006);
    world.time += 20_000;
    client.watch();
    expect(client.status).toMatchObject({ state: "lost", behindS: 20 });
  });

  it("does not reconnect once it is signed out", () => {
    const { world, client } = connected();
    world.socket.drop(4401);
    world.pass(60_000);
    expect(world.sockets).toHaveLength(1);
    expect(client.status.state).toBe("signed_out");
  });

  it("reports when the server closed it because access was narrowed, and reconnects", () => {
    const { world, client } = connected();
    world.socket.drop(4403);
    expect(world.numNarrowed).toBe(1);
    world.pass(60_000);
    expect(world.sockets.length).toBeGreaterThan(1);
    expect(client.status.state).not.toBe("signed_out");
  });

  it("treats silence as being behind, and long silence as a lost connection", () => {
    const { world, client } = connected();
    world.socket.say({ topic: "job:a", seq: 1, kind: "snapshot" });
    world.time += SILENT_MS + 1;
    client.watch();
    expect(client.status.state).toBe("silent");
    world.time += 20_000;
    client.watch();
    expect(client.status.state).toBe("lost");
  });

  it("shows that the source is delayed until the server says otherwise", () => {
    const { world, client } = connected();
    world.socket.say({ topic: "", kind: "notice", data: { code: "behind" } });
    expect(client.status.state).toBe("held_up");
    world.socket.say({ topic: "", kind: "notice", data: { code: "current" } });
    expect(client.status.state).toBe("live");
  });

  it("forgets a topic after unsubscribing", () => {
    const { world, leave } = connected();
    world.socket.say({ topic: "job:a", seq: 4, kind: "snapshot" });
    leave();
    expect(world.socket.sent.at(-1)).toEqual({ unsubscribe: ["job:a"] });
    world.socket.drop(1006);
    world.pass(300);
    world.socket.onopen?.();
    expect(world.socket.sent).toEqual([{ subscribe: [], since: {} }]);
  });
});
