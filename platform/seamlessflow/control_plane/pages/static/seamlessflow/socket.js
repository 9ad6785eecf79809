// The live socket: opens again when lost, tells what it read, and says how far behind the page is.
// The server sends something on `machines` each five seconds, so silence means that something is stuck.

const RETRY_MS = [300, 1000, 2000, 5000];
const SILENT_MS = 12_000, DEAD_MS = 25_000, SIGNED_OUT = 4401;

export function follow(subscribe, read, receive, show) {
  let socket, retries = 0, problem = "connecting", heardAt = Date.now(), openedAt = heardAt;

  function connect() {
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live`);
    socket.onopen = () => {
      [retries, problem, openedAt] = [0, "", Date.now()];
      socket.send(JSON.stringify({ subscribe, since: read }));
    };
    socket.onmessage = (message) => message.data.split("\n").forEach((line) => hear(JSON.parse(line)));
    socket.onclose = (event) => {
      if (event.code === SIGNED_OUT) return (problem = "signed out, load the page again");
      problem = "connection lost";
      setTimeout(connect, RETRY_MS[Math.min(retries++, RETRY_MS.length - 1)]);
    };
  }

  function hear(frame) {
    if (frame.kind === "notice") problem = frame.data.code === "behind" ? "live events are held up" : "";
    else if (frame.kind === "error") problem = frame.data.detail;
    else {
      heardAt = Date.now();
      read[frame.topic] = [frame.epoch, frame.seq];
      receive(frame);
    }
  }

  function watch() {
    const silent = Date.now() - heardAt;
    if (!problem && Date.now() - Math.max(heardAt, openedAt) > DEAD_MS) socket.close();
    show(problem || (silent > SILENT_MS ? "no news" : ""), Math.round(silent / 1000));
  }

  connect();
  setInterval(watch, 500);
}
