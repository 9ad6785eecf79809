// The output of one phase, followed by byte offset while the page is looked at.

import { element } from "./draw.js";

const POLL_MS = 1000, MAX_SHOWN = 200_000;
const byId = (id) => document.getElementById(id);
let offset = 0, stream = "", isReading = false, isChosen = false;

export function offerPhases(phases) {
  const select = byId("log-phase"), chosen = select.value;
  byId("log-fields").hidden = byId("log").hidden = !phases.length;
  byId("log-none").hidden = phases.length > 0;
  const options = phases.map((p) => ({ id: p.id, said: `${p.role} on ${p.machine}, fence ${p.fence}, ${p.state}` }));
  const known = [...select.options].map((o) => `${o.value} ${o.textContent}`).join();
  // A list that somebody has open must not change under the pointer.
  if (document.activeElement === select && select.value) return;
  if (known === options.map((o) => `${o.id} ${o.said}`).join()) return;
  select.replaceChildren(...options.map((o) => element("option", { value: o.id }, o.said)));
  select.value = chosen;
  const shown = phases.find((p) => p.id === chosen);
  if (!shown || (!isChosen && shown.role !== "train")) display(firstChoice(phases));
}

function display(phaseId) {
  const select = byId("log-phase");
  if (!phaseId || select.dataset.shown === phaseId) return;
  select.value = select.dataset.shown = phaseId;
  restart("");
}

function choose(phaseId) {
  isChosen = true;
  display(phaseId);
}

export function listen() {
  byId("log-phase").addEventListener("change", (event) => choose(event.target.value));
  byId("phases").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-key]");
    if (!button) return;
    choose(button.dataset.key);
    byId("log-title").scrollIntoView({ behavior: "smooth", block: "start" });
  });
  byId("log-stream").addEventListener("change", (event) => restart(event.target.value));
  setInterval(() => document.visibilityState === "visible" && read(), POLL_MS);
}

// A trainer's log tells most. Phases may live for seconds only: what is shown stays, or the log would jump.
function firstChoice(phases) {
  const trainers = phases.filter((p) => p.role === "train"), isLive = (p) => p.ended_at === null;
  return (trainers.find(isLive) ?? trainers[0] ?? phases.find(isLive) ?? phases[0])?.id;
}

function restart(chosenStream) {
  [offset, stream] = [0, chosenStream];
  byId("log").textContent = "";
  byId("log-note").textContent = "";
  byId("log-stream").replaceChildren();
  byId("log-stream").hidden = true;
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
    byId("log-stream").hidden = part.streams.length < 2;
  }
  offset = part.next_offset;
  byId("log-note").textContent = offset ? `${offset.toLocaleString("en-GB")} bytes` : "nothing was written yet";
  if (!part.text) return;
  const host = byId("log"), atEnd = host.scrollHeight - host.scrollTop - host.clientHeight < 40;
  host.textContent = (host.textContent + part.text).slice(-MAX_SHOWN);
  if (atEnd) host.scrollTop = host.scrollHeight;
}
