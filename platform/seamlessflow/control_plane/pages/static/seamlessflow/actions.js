// Pause, resume and cancel: POSTs to the REST API with the visitor's session. The scheduler does the rest.

const byId = (id) => document.getElementById(id);
const ENDED = ["completed", "failed", "cancelled", "lost"];

export function offer(job) {
  if (!byId("actions")) return;
  const isOver = ENDED.includes(job.state) || job.desired === "cancel";
  byId("actions").hidden = isOver;
  byId("pause").hidden = job.desired === "pause";
  byId("resume").hidden = job.desired !== "pause";
}

export function listen() {
  if (!byId("actions")) return;
  byId("pause").addEventListener("click", () => ask("pause"));
  byId("resume").addEventListener("click", () => ask("resume"));
  byId("cancel").addEventListener("click", () => byId("sure").showModal());
  byId("sure").addEventListener("close", () => byId("sure").returnValue === "cancel" && ask("cancel"));
}

async function ask(verb) {
  const { job } = byId("actions").dataset, said = byId("action-said");
  const buttons = [...byId("actions").querySelectorAll("button")];
  said.textContent = "";
  for (const button of buttons) button.disabled = true;
  try {
    const headers = { "Content-Type": "application/json", "X-CSRFToken": document.querySelector("[name=csrfmiddlewaretoken]").value };
    const answer = await fetch(`/api/v1/jobs/${job}/${verb}`, { method: "POST", headers, body: "{}" });
    const body = await answer.json();
    if (answer.ok) offer(body);
    else said.textContent = body.detail;
  } catch (error) {
    said.textContent = `The platform could not be reached: ${error.message}`;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}
