// What each page shows of the rows that `live.js` keeps. Every text is set as text, never as markup.

import { offer } from "./actions.js";
import { describe, drawRewards, element } from "./draw.js";
import { clock, day, decimal, duration, integer, NONE } from "./format.js";
import * as log from "./log.js";

const byId = (id) => document.getElementById(id);
const badge = (state) => element("span", { class: `badge ${state}` }, state);
const newestFirst = (table, by) => [...table.values()].sort((a, b) => b[by] - a[by]);
const emptyNote = () => byId("empty").content.cloneNode(true);
const shownVersion = (version) => (version === null ? NONE : integer(version));

function tableOf(heads, rows) {
  const cell = (name) => (content, i) => element(name, heads[i].class ? { class: heads[i].class } : {}, content);
  const head = element("tr", {}, ...heads.map((h) => h.name).map(cell("th")));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.map((r) => element("tr", {}, ...r.map(cell("td"))))));
}

// Replaces a table only when something in it changed, so that focus, selection and scrolling stay.
function put(id, table) {
  const host = byId(id), top = host.scrollTop;
  if (host.firstElementChild?.isEqualNode(table)) return;
  const focused = host.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  host.replaceChildren(table);
  host.scrollTop = top;
  if (focused) host.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
}

function text(id, said) {
  if (byId(id).textContent !== said) byId(id).textContent = said;
}

function took(job, now) {
  return job.started_at ? duration((job.ended_at ?? now) - job.started_at) : NONE;
}

export function jobsPage({ tables, now }) {
  const jobs = newestFirst(tables.jobs, "created_at");
  if (!jobs.length) return byId("jobs").replaceChildren(emptyNote());
  const heads = [{ name: "Job", class: "name" }, { name: "State" }, { name: "Updates", class: "number nowrap" }, { name: "Ran for", class: "number nowrap" }, { name: "Submitted", class: "nowrap" }, { name: "Why", class: "why" }];
  put("jobs", tableOf(heads, jobs.map((job) => [
    element("a", { href: `/jobs/${job.id}`, "data-key": job.id }, job.name), badge(job.state), `${integer(job.num_updates_done)} of ${integer(job.num_updates)}`,
    took(job, now()), day(job.created_at), job.waiting_reason || job.state_reason || NONE,
  ])));
}

export function jobPage(state) {
  const { tables, rate, now } = state;
  const job = [...tables.jobs.values()][0];
  const rewards = [...tables.rewards.values()].sort((a, b) => a.batch - b.batch);
  text("job-state", job.state);
  byId("job-state").className = `badge ${job.state}`;
  text("job-reason", job.waiting_reason || job.state_reason);
  text("job-times", `submitted ${day(job.created_at)}${job.started_at ? `, ${job.ended_at ? "ran" : "running"} for ${took(job, now())}` : ""}`);
  document.title = `${job.num_updates_done}/${job.num_updates} ${job.name} · SeamlessFlow`;
  text("updates", integer(job.num_updates_done));
  text("updates-all", ` of ${integer(job.num_updates)}`);
  byId("progress").value = job.num_updates_done / job.num_updates;
  text("version", integer(job.latest_version));
  text("version-note", servedNote(tables.phases));
  text("rate", job.ended_at ? NONE : integer(rate));
  text("rate-note", job.ended_at ? "the job has ended" : "mean of the last 10 s");
  if (rewards.length) {
    text("reward", decimal(rewards.at(-1).mean));
    text("reward-note", `± ${decimal(rewards.at(-1).spread)} in update ${integer(rewards.at(-1).batch)}`);
  }
  drawRewards(byId("reward-chart"), rewards);
  offer(job);
  groups(tables.groups);
  phases(tables.phases, now());
  events(tables.events);
  log.offerPhases(newestFirst(tables.phases, "leased_at"));
}

function servedNote(phases) {
  const engines = newestFirst(phases, "leased_at").filter((p) => p.role === "rollout" && p.state === "active");
  return engines.map((p) => `${p.machine} serves ${shownVersion(p.served_version)}`).sort().join(", ") || "no engine is active";
}

function versions(group) {
  if (group.min_version === null) return NONE;
  return group.min_version === group.max_version ? integer(group.min_version) : `${integer(group.min_version)} to ${integer(group.max_version)}`;
}

function groups(table) {
  if (!table.size) return put("groups", element("p", { class: "muted" }, "No task has been handed out yet."));
  const heads = [{ name: "Group" }, { name: "State" }, { name: "Reward", class: "number nowrap" }, { name: "Verdicts", class: "number nowrap" }, { name: "Versions", class: "number nowrap" }, { name: "Update", class: "number" }];
  const anyDropped = [...table.values()].some((g) => g.state === "dropped");
  if (anyDropped) heads.push({ name: "Why", class: "why" });
  // Open ones come last: there is little to tell of them yet.
  const order = [...table.values()].sort((a, b) => (a.state === "open") - (b.state === "open") || b.index - a.index);
  put("groups", tableOf(heads, order.map((g) => [
    element("a", { href: `/groups/${g.id}`, "data-key": g.id, "aria-label": `Group ${g.index}` }, integer(g.index)), badge(g.state),
    g.reward_mean === null ? NONE : `${decimal(g.reward_mean, 2)} ± ${decimal(g.reward_std, 2)}`, `${g.num_verdicts} of ${g.size}`, versions(g), integer(g.batch),
    ...(anyDropped ? [g.state === "dropped" ? g.reason : NONE] : []),
  ])));
}

function phases(table, now) {
  if (!table.size) return put("phases", element("p", { class: "muted" }, "No machine has been leased yet."));
  const heads = [{ name: "Since", class: "nowrap" }, { name: "Machine" }, { name: "Role" }, { name: "State" }, { name: "For", class: "number nowrap" }, { name: "Version", class: "number" }, { name: "" }, { name: "Why", class: "why" }];
  const order = newestFirst(table, "leased_at").sort((a, b) => (a.ended_at !== null) - (b.ended_at !== null));
  put("phases", tableOf(heads, order.map((p) => [
    clock(p.leased_at), p.machine, p.role, badge(p.state), duration((p.ended_at ?? now) - p.leased_at), shownVersion(p.served_version), logButton(p), p.reason || NONE,
  ])));
}

function logButton(phase) {
  const said = { type: "button", class: "link", "data-key": phase.id, "aria-label": `Log of the ${phase.role} phase on ${phase.machine}, fence ${phase.fence}` };
  return element("button", said, "log");
}

function events(table) {
  const heads = [{ name: "At", class: "nowrap" }, { name: "What" }, { name: "Why", class: "why" }, { name: "Who" }];
  put("events", tableOf(heads, newestFirst(table, "id").map((e) => [
    clock(e.at), e.to ? `${e.kind} ${e.from ? `${e.from} → ` : ""}${e.to}` : e.kind, e.reason || NONE, author(e.author),
  ])));
}

// Identifiers tell a reader little: the kind is shown, the rest on hover.
function author(name) {
  return name.length > 30 ? element("span", { title: name }, name.split(":")[0]) : name;
}

export function machinesPage({ tables }) {
  const machines = [...tables.machines.values()].sort((a, b) => a.name.localeCompare(b.name));
  if (!machines.length) return byId("machines").replaceChildren(emptyNote());
  const heads = ["Machine", "Tags", "Health", "Phase", "Version", "Does", "Hardware", "Note"].map((name) => ({ name }));
  put("machines", tableOf(heads, machines.map((m) => [
    element("strong", {}, m.name), element("span", {}, ...m.tags.map((tag) => element("span", { class: "tag" }, tag))), health(m),
    m.role ? element("span", { class: "nowrap" }, `${m.role} `, badge(m.phase_state)) : "none", shownVersion(m.version),
    m.is_healthy ? describe(m.open_state || "unknown", m.open_cause) : NONE, hardware(m.capabilities), m.reason || NONE,
  ])));
}

function health(machine) {
  if (!machine.is_healthy) return badge("down");
  return badge(machine.is_draining ? "draining" : machine.is_cordoned ? "cordoned" : "healthy");
}

function hardware(has) {
  if (!has.num_cores) return NONE;
  const parts = [`${has.num_cores} core${has.num_cores === 1 ? "" : "s"}`, `${(has.memory_bytes / 2 ** 30).toFixed(0)} GiB`];
  return [...parts, ...(has.accelerators ?? [])].join(", ");
}
