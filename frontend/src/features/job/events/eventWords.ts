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
export type Outcome = { from: string; to: string } | { said: string };

const REQUESTS: Record<string, string> = {
  pause: "pause requested",
  run: "resume requested",
  cancel: "cancellation requested",
};

/** The subject of an event. `machineOf` maps the stored ID of a machine to its name. */
export function subjectSaid(event: JobEvent, machineOf: (id: string) => string | undefined): string {
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
  if (kind === "job.desired") return { said: REQUESTS[String(data.to)] ?? `${data.to} requested` };
  if (kind === "job.priority") return { said: `priority ${data.from} to ${data.to}` };
  if (kind === "job.stage")
    return { said: data.from ? `from stage ${data.from} to ${data.to}` : `stage ${data.to} requested` };
  if (kind === "version.published") return { said: "published" };
  if (kind === "weights.fallback") return { said: "read from files" };
  if (kind === "engine.suspected") return { said: "suspected" };
  if (kind === "engine.lost") return { said: "lost and started again" };
  if (kind === "engine.rejoined") return { said: "serving again" };
  if (kind === "session.outcome_refused") return { said: "second outcome refused" };
  return { said: kind };
}

/** A user or machine by name, or a process by its kind, because identifiers mean little to a reader. */
export function authorSaid(author: string): string {
  const [kind, name] = author.split(":");
  if (name === undefined) return author;
  return kind === "phase" ? "trainer" : name;
}

function machineOfAuthor(author: string): string | undefined {
  return author.startsWith("machine:") ? author.slice("machine:".length) : undefined;
}
