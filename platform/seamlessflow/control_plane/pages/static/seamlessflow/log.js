// The output of one phase, followed by byte offset while the page is looked at.

import { element } from "./draw.js";

const POLL_MS = 1000, MAX_SHOWN = 200_000;
const byId = (id) => document.getElementById(id);
let offset = 0, stream = "", chosenByHand = false, isReading = false;

export function offerPhases(phases) {
  const select = byId("log-phase"), chosen = select.value;
  const options = phases.map((p) => ({ id: p.id, said: `${p.role} on ${p.machine}, fence ${p.fence}, ${p.state}` }));
  const known = [...select.options].map((o) => `${o.value} ${o.textContent}`).join();
  if (known === options.map((o) => `${o.id} ${o.said}`).join()) return;
  select.replaceChildren(...options.map((o) => element("option", { value: o.id }, o.said)));
  select.value = chosen;
  if (!chosenByHand || !select.value) choose(newestTrainer(phases), false);
}

export function choose(phaseId, byHand = true) {
  const select = byId("log-phase");
  chosenByHand ||= byHand;
  if (!phaseId || (select.value === phaseId && select.dataset.shown === phaseId)) return;
  select.value = select.dataset.shown = phaseId;
  restart("");
}

export function listen() {
  byId("log-phase").addEventListener("change", (event) => choose(event.target.value));
  byId("log-stream").addEventListener("change", (event) => restart(event.target.value));
  setInterval(() => document.visibilityState === "visible" && read(), POLL_MS);
}

// A trainer that lives for seconds would make the log jump: keep to what was shown while it still has a row.
function newestTrainer(phases) {
  const shown = phases.find((p) => p.id === byId("log-phase").dataset.shown);
  if (shown && shown.state !== "ended") return shown.id;
  const live = phases.filter((p) => p.ended_at === null);
  return (live.find((p) => p.role === "train") ?? live[0] ?? shown ?? phases[0])?.id;
}

function restart(chosenStream) {
  [offset, stream] = [0, chosenStream];
  byId("log").textContent = "";
  byId("log-note").textContent = "";
  byId("log-stream").replaceChildren();
  read();
}

async function read() {
  const phase = byId("log-phase").value;
  if (!phase || isReading) return;
  isReading = true;
  try {
    const query = new URLSearchParams({ offset, ...(stream ? { stream } : {}) });
    const answer = await fetch(`/api/v1/phases/${phase}/logs?${query}`);
    const part = await answer.json();
    // Somebody chose another phase meanwhile: this answer is not for it.
    if (byId("log-phase").value === phase) show(answer.ok ? part : { ...part, text: "", streams: [], detail: part.detail });
  } catch (error) {
    byId("log-note").textContent = `waiting for the platform: ${error.message}`;
  } finally {
    isReading = false;
  }
}

function show(part) {
  if (part.detail) return (byId("log-note").textContent = part.detail);
  if (part.offset !== offset) return;
  if (part.streams.length && !byId("log-stream").options.length) {
    byId("log-stream").replaceChildren(...part.streams.map((name) => element("option", { value: name }, name)));
    byId("log-stream").value = stream = part.stream;
  }
  offset = part.next_offset;
  byId("log-note").textContent = offset ? `${offset.toLocaleString("en-GB")} bytes` : "nothing was written yet";
  if (!part.text) return;
  const host = byId("log"), atEnd = host.scrollHeight - host.scrollTop - host.clientHeight < 40;
  host.textContent = (host.textContent + part.text).slice(-MAX_SHOWN);
  if (atEnd) host.scrollTop = host.scrollHeight;
}
