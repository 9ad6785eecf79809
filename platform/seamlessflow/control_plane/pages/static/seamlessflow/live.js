// Keeps a page live: takes the snapshot embedded in it, then deltas over /ws/live. A gap or a new epoch makes the
// server send a snapshot; a lost socket is opened again, telling what was read.

import { describe, drawLanes, drawLegend, drawRewards, element, LANE_WINDOW_MS } from "./draw.js";

const KEYS = { jobs: "id", phases: "id", events: "id", machines: "name", intervals: "id", rewards: "batch" };
const MAX_EVENTS = 200, MAX_INTERVALS = 4000, RETRY_MS = [300, 1000, 2000, 5000];
const embedded = JSON.parse(document.getElementById("state").textContent);
const tables = Object.fromEntries(Object.keys(KEYS).map((name) => [name, new Map()]));
const read = {};
let rate = 0, clockOffset = 0, dirty = true, retries = 0;
const byId = (id) => document.getElementById(id);

function merge(data) {
  for (const [name, key] of Object.entries(KEYS)) for (const row of data[name] ?? []) tables[name].set(row[key], row);
  if (data.tokens_per_s !== undefined) rate = data.tokens_per_s;
  trim(tables.events, MAX_EVENTS);
  trim(tables.intervals, MAX_INTERVALS);
  dirty = true;
}

function trim(table, most) {
  const surplus = table.size - most;
  if (surplus > 0) for (const key of [...table.keys()].sort((a, b) => a - b).slice(0, surplus)) table.delete(key);
}

function connect() {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live`);
  socket.onopen = () => {
    retries = 0;
    socket.send(JSON.stringify({ subscribe: embedded.subscribe, since: read }));
    say("live", true);
  };
  socket.onmessage = (message) => receive(JSON.parse(message.data));
  socket.onclose = () => {
    say("connection lost, trying again");
    setTimeout(connect, RETRY_MS[Math.min(retries++, RETRY_MS.length - 1)]);
  };
}

function receive(frame) {
  clockOffset = frame.at - Date.now();
  if (frame.kind === "notice") return say(frame.data.code === "behind" ? "live events are behind" : "live", frame.data.code === "current");
  if (frame.kind === "error") return say(frame.data.detail);
  read[frame.topic] = [frame.epoch, frame.seq];
  merge(frame.data);
}

function say(text, current = false) {
  const host = byId("live");
  host.hidden = false;
  host.textContent = current ? `● ${text}` : text;
  host.classList.toggle("current", current);
}

const badge = (state) => element("span", { class: `badge ${state}` }, state);
const clock = (ms) => (ms ? new Date(ms).toLocaleTimeString("en-GB") : "–");
const newestFirst = (name, by) => [...tables[name].values()].sort((a, b) => b[by] - a[by]);
const machineRows = () => [...tables.machines.values()].sort((a, b) => a.name.localeCompare(b.name));

function tableOf(heads, rows) {
  const cell = (name) => (content, i) => element(name, heads[i].class ? { class: heads[i].class } : {}, content);
  const head = element("tr", {}, ...heads.map((h) => h.name).map(cell("th")));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.map((r) => element("tr", {}, ...r.map(cell("td"))))));
}

const emptyNote = () => byId("empty").content.cloneNode(true);

const pages = {
  jobs() {
    const jobs = newestFirst("jobs", "created_at");
    if (!jobs.length) return byId("jobs").replaceChildren(emptyNote());
    const heads = [{ name: "Job" }, { name: "State" }, { name: "Updates", class: "number nowrap" }, { name: "Version", class: "number" }, { name: "Why" }, { name: "Submitted", class: "nowrap" }];
    byId("jobs").replaceChildren(tableOf(heads, jobs.map((job) => [
      element("a", { href: `/jobs/${job.id}` }, job.name), badge(job.state), `${job.num_updates_done} / ${job.num_updates}`,
      String(job.latest_version), job.waiting_reason || job.state_reason || "–", new Date(job.created_at).toLocaleString("en-GB"),
    ])));
  },
  job() {
    const job = [...tables.jobs.values()][0];
    byId("job-state").textContent = job.state;
    byId("job-state").className = `badge ${job.state}`;
    byId("job-reason").textContent = job.waiting_reason || job.state_reason;
    byId("updates").replaceChildren(String(job.num_updates_done), element("small", {}, ` of ${job.num_updates}`));
    byId("progress").value = job.num_updates_done / job.num_updates;
    byId("version").textContent = job.latest_version;
    const engines = newestFirst("phases", "leased_at").filter((p) => p.role === "rollout" && p.state === "active");
    byId("version-note").textContent = engines.map((p) => `${p.machine}: ${p.served_version ?? "–"}`).sort().join(", ") || "no engine is active";
    byId("rate").textContent = Math.round(rate).toLocaleString("en-GB");
    const rewards = [...tables.rewards.values()].sort((a, b) => a.batch - b.batch);
    if (rewards.length) {
      byId("reward").textContent = rewards.at(-1).mean.toFixed(3);
      byId("reward-note").textContent = `± ${rewards.at(-1).spread.toFixed(3)} in update ${rewards.at(-1).batch}`;
    }
    drawRewards(byId("reward-chart"), rewards);
    drawMovingLanes();
    phases();
    events();
  },
  machines() {
    const machines = machineRows();
    if (!machines.length) return byId("machines").replaceChildren(emptyNote());
    const heads = ["Machine", "Tags", "Health", "Phase", "Version", "Does", "Hardware", "Generation"].map((name) => ({ name }));
    byId("machines").replaceChildren(tableOf(heads, machines.map((m) => [
      element("strong", {}, m.name), element("span", {}, ...m.tags.map((tag) => element("span", { class: "tag" }, tag))), health(m),
      m.role ? element("span", {}, `${m.role} `, badge(m.phase_state)) : "none", m.version === null ? "–" : String(m.version),
      m.is_healthy ? describe(m.open_state || "unknown", m.open_cause) : "–", hardware(m.capabilities), String(m.generation),
    ])));
    drawMovingLanes();
  },
};

function health(machine) {
  if (!machine.is_healthy) return badge("down");
  return badge(machine.is_draining ? "draining" : machine.is_cordoned ? "cordoned" : "healthy");
}

function hardware(has) {
  if (!has.num_cores) return "–";
  const parts = [`${has.num_cores} core${has.num_cores === 1 ? "" : "s"}`, `${(has.memory_bytes / 2 ** 30).toFixed(0)} GiB`];
  return [...parts, ...(has.accelerators ?? [])].join(", ");
}

function phases() {
  const heads = [{ name: "Since", class: "nowrap" }, { name: "Machine" }, { name: "Role" }, { name: "State" }, { name: "Version", class: "number" }, { name: "Why" }, { name: "" }];
  byId("phases").replaceChildren(tableOf(heads, newestFirst("phases", "leased_at").slice(0, 60).map((p) => [
    clock(p.leased_at), p.machine, p.role, badge(p.state), p.served_version === null ? "–" : String(p.served_version), p.reason,
    element("a", { href: `/api/v1/phases/${p.id}/logs`, "aria-label": `Log of the ${p.role} phase on ${p.machine}` }, "log"),
  ])));
}

function events() {
  const heads = [{ name: "At", class: "nowrap" }, { name: "What" }, { name: "Why" }, { name: "Who", class: "nowrap" }];
  byId("events").replaceChildren(tableOf(heads, newestFirst("events", "id").slice(0, 100).map((e) => [
    clock(e.at), e.to ? `${e.kind} ${e.from ? `${e.from} → ` : ""}${e.to}` : e.kind, e.reason, e.author,
  ])));
}

function drawMovingLanes() {
  // Lanes move with time, unless somebody reads them.
  if (byId("lanes").matches(":hover")) return;
  const job = document.body.dataset.page === "job";
  const used = new Set([...tables.phases.values()].map((p) => p.machine));
  const shown = machineRows().filter((m) => !job || used.has(m.name));
  drawLanes(byId("lanes"), shown, [...tables.intervals.values()], Date.now() + clockOffset);
}

function draw() {
  dirty = false;
  const floor = Date.now() + clockOffset - LANE_WINDOW_MS;
  for (const [id, interval] of tables.intervals) if (interval.end < floor) tables.intervals.delete(id);
  const scrolled = ["phases", "events"].map((id) => [byId(id), byId(id)?.scrollTop]);
  pages[document.body.dataset.page]();
  for (const [host, top] of scrolled) if (host) host.scrollTop = top;
}

for (const data of Object.values(embedded.topics)) merge(data);
if (byId("legend")) drawLegend(byId("legend"));
draw();
connect();
setInterval(() => {
  if (document.visibilityState !== "visible") return;
  if (dirty) draw();
  else if (byId("lanes")) drawMovingLanes();
}, 500);
addEventListener("resize", () => (dirty = true));
