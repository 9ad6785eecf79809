// Keeps a page live: takes the snapshot embedded in it, then deltas over the socket. A row replaces the one with its key.

import * as actions from "./actions.js";
import { drawLanes, drawLegend, element, LANE_WINDOW_MS } from "./draw.js";
import * as log from "./log.js";
import { jobPage, jobsPage, machinesPage } from "./screens.js";
import { follow } from "./socket.js";

const KEYS = { jobs: "id", phases: "id", events: "id", groups: "id", machines: "name", intervals: "id", rewards: "batch" };
const MAX_ENDED_PHASES = 60;
const MOST = { events: [100, "id"], groups: [60, "index"], intervals: [4000, "id"] };
const embedded = JSON.parse(document.getElementById("state").textContent);
const tables = Object.fromEntries(Object.keys(KEYS).map((name) => [name, new Map()]));
const state = { tables, rate: null, now: () => Date.now() + clockOffset };
let clockOffset = 0, dirty = true;
const byId = (id) => document.getElementById(id);
const screens = { jobs: jobsPage, job: jobPage, machines: machinesPage };

function merge(data) {
  for (const [name, key] of Object.entries(KEYS)) for (const row of data[name] ?? []) tables[name].set(row[key], row);
  if (data.tokens_per_s !== undefined) state.rate = data.tokens_per_s;
  for (const [name, [most, by]] of Object.entries(MOST)) for (const row of surplus(tables[name], most, by)) tables[name].delete(row[KEYS[name]]);
  const ended = new Map([...tables.phases].filter(([, phase]) => phase.ended_at !== null));
  for (const phase of surplus(ended, MAX_ENDED_PHASES, "leased_at")) tables.phases.delete(phase.id);
  dirty = true;
}

function surplus(table, most, by) {
  return table.size <= most ? [] : [...table.values()].sort((a, b) => a[by] - b[by]).slice(0, table.size - most);
}

function receive(frame) {
  clockOffset = frame.at - Date.now();
  merge(frame.data);
}

// Seconds count in an element of their own, hidden from screen readers: they hear of the change only.
function showFreshness(problem, behindS) {
  const host = byId("live"), said = problem ? `${problem} ` : "● live";
  host.hidden = false;
  host.classList.toggle("current", !problem);
  if (byId("live-said").textContent !== said) byId("live-said").textContent = said;
  byId("live-behind").textContent = problem ? `behind by ${behindS} s` : "";
}

function drawMovingLanes() {
  // Lanes move with time, unless somebody reads them.
  if (!byId("lanes") || byId("lanes").matches(":hover")) return;
  const used = new Set([...tables.phases.values()].map((phase) => phase.machine));
  const shown = [...tables.machines.values()].filter((machine) => document.body.dataset.page !== "job" || used.has(machine.name));
  shown.sort((a, b) => a.name.localeCompare(b.name));
  if (!shown.length) byId("lanes").replaceChildren(element("p", { class: "muted" }, "None has worked on it yet."));
  else drawLanes(byId("lanes"), shown, [...tables.intervals.values()], state.now());
}

function draw() {
  dirty = false;
  const floor = state.now() - LANE_WINDOW_MS;
  for (const [id, interval] of tables.intervals) if (interval.end < floor) tables.intervals.delete(id);
  screens[document.body.dataset.page](state);
  drawMovingLanes();
}

for (const data of Object.values(embedded.topics)) merge(data);
if (byId("legend")) drawLegend(byId("legend"));
if (byId("log")) {
  actions.listen();
  log.listen();
}
draw();
follow(embedded.subscribe, {}, receive, showFreshness);
setInterval(() => {
  if (document.visibilityState !== "visible") return;
  if (dirty) draw();
  else drawMovingLanes();
}, 500);
addEventListener("resize", () => (dirty = true));
