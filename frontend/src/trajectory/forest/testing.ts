// Small forests for tests.
import { session } from "../wire/testing";
import { Forest } from "./Forest";

/** A forest of one session, from nodes [parent, kind, number of tokens]. */
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
