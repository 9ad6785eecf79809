// A project's disk usage by kind, in the order used by every bar and table. Pure.
import type { Usage } from "./queries";

/** The kinds of the REST API, each with its label and colour. */
export const USAGE_KINDS = [
  { kind: "checkpoints", word: "Checkpoints", colour: 1 },
  { kind: "versions", word: "Policy versions", colour: 2 },
  { kind: "trajectories", word: "Trajectories", colour: 3 },
  { kind: "uploads", word: "Uploads", colour: 4 },
  { kind: "logs", word: "Logs", colour: 5 },
  { kind: "events", word: "Events", colour: 6 },
  { kind: "metrics", word: "Metrics", colour: 7 },
] as const;

export interface Share {
  kind: string;
  word: string;
  colour: number;
  numBytes: number;
  /** Share of all bytes of the project; 0 if it has none. */
  share: number;
}

export function sharesOf(usage: Pick<Usage, "by_kind" | "num_bytes">): Share[] {
  return USAGE_KINDS.map(({ kind, word, colour }) => {
    const numBytes = usage.by_kind[kind] ?? 0;
    return { kind, word, colour, numBytes, share: usage.num_bytes > 0 ? numBytes / usage.num_bytes : 0 };
  });
}
