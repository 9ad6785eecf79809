// Puts an event into words: its subject, the change and the actor. Pure.

/** An event, as the REST API returns it. */
export interface JobEvent {
  id: number;
  at: string;
  kind: string;
  subject_id: string;
  from_state: string;
  to_state: string;
  reason: string;
  author: string;
  data: Record<string, unknown>;
}

/** A state change, or the words for any other event, such as a request. */
export type Outcome = { from: string; to: string } | { wording: string };

const REQUESTS: Record<string, string> = {
  pause: "pause requested",
  run: "resume requested",
  cancel: "cancellation requested",
};

/** The subject of an event. `machineOf` maps the stored ID of a machine to its name. */
export function subjectText(event: JobEvent, machineOf: (id: string) => string | undefined): string {
  const { kind, data } = event;
  if (kind.startsWith("job.")) return "job";
  if (kind === "phase.state") {
    const name = machineOf(String(data.machine_id ?? "")) ?? machineOfAuthor(event.author);
    return name ? `${data.role} on ${name}` : `${data.role}`;
  }
  if (kind === "version.published") return `version ${data.version}`;
  if (kind === "evaluation.state") return `evaluation of version ${data.version}`;
  if (kind === "group.state") return `group ${data.index}`;
  if (kind === "weights.fallback") return "weights";
  if (kind.startsWith("engine.")) return `engine on ${data.machine}`;
  if (kind.startsWith("session.")) return "session";
  return kind;
}

export function outcomeOf({ kind, from_state, to_state, data }: JobEvent): Outcome {
  if (to_state) return { from: from_state, to: to_state };
  if (kind === "job.desired") return { wording: REQUESTS[String(data.to)] ?? `${data.to} requested` };
  if (kind === "job.priority") return { wording: `priority ${data.from} to ${data.to}` };
  if (kind === "job.stage")
    return { wording: data.from ? `from stage ${data.from} to ${data.to}` : `stage ${data.to} requested` };
  if (kind === "version.published") return { wording: "published" };
  if (kind === "weights.fallback") return { wording: "read from files" };
  if (kind === "engine.suspected") return { wording: "suspected" };
  if (kind === "engine.lost") return { wording: "lost and started again" };
  if (kind === "engine.rejoined") return { wording: "serving again" };
  if (kind === "session.outcome_refused") return { wording: "second outcome refused" };
  return { wording: kind };
}

/** A user or machine by name, or a process by its kind, because identifiers mean little to a reader. */
export function authorText(author: string): string {
  const [kind, name] = author.split(":");
  if (name === undefined) return author;
  return kind === "phase" ? "trainer" : name;
}

function machineOfAuthor(author: string): string | undefined {
  return author.startsWith("machine:") ? author.slice("machine:".length) : undefined;
}
