// Rows for tests.
import type { SessionRow } from "./wire";

export function session(id: string, slot: number, changes: Partial<SessionRow> = {}): SessionRow {
  return {
    id,
    slot,
    attempt: 1,
    state: "open",
    reason: "",
    reward: null,
    advantage: null,
    is_timeout: false,
    is_late: false,
    num_turns: 0,
    num_sampled_tokens: 0,
    num_nodes: 0,
    opened_at: 0,
    closed_at: null,
    ...changes,
  };
}
