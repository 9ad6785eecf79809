// Small forests for tests.
import { Forest } from "./Forest";
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

/** One session of nodes [parent, kind, number of tokens]. */
export function forestOf(nodes: [parent: number, kind: number, numTokens: number][]): Forest {
  const forest = new Forest();
  forest.setSessions([session("s", 0)]);
  for (const [index, [parent, kind, numTokens]] of nodes.entries()) {
    forest.addRow({
      session: "s",
      index,
      parent: parent < 0 ? null : parent,
      kind,
      num_tokens: numTokens,
      spans: kind === 2 ? [0, 1] : [],
      mean_logprob: kind === 2 ? -0.5 : null,
      marks: 0,
      handover_at: [],
      turn: String(index),
      prompt: kind === 0 ? index + 1 : 0,
    });
  }
  return forest;
}
