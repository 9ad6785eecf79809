// Says how the turns of a session joined its tree. Pure.
import type { Schemas } from "../../api/client";
import { integer, NONE, plural } from "../../ui/words/format";

export type JoinsOutput = Schemas["JoinsOutput"];

/** A template that rewrites the history is no fork: the messages are the same. */
const REALIGNED = "template";

const CAUSE_WORDS: Record<string, string> = {
  new_root: "the conversation began differently",
  system: "the system prompt changed",
  context: "tools or template arguments changed",
  history: "earlier messages were edited, dropped or branched",
  repeat: "the same request was sent again",
  template: "the template rendered the history differently",
};

/** `14 of 15`; a dash if no turn could join. */
export function joinsFigure(joins: JoinsOutput | null): string {
  return joins && joins.num_turns > 0 ? `${integer(joins.num_clean)} of ${integer(joins.num_turns)}` : NONE;
}

/** `2 conversations; 1 fork: the system prompt changed`, the most frequent cause first. */
export function joinsText(joins: JoinsOutput | null): string {
  if (!joins) return "";
  const several = (joins.num_conversations ?? 0) > 1 ? `${integer(joins.num_conversations)} conversations; ` : "";
  return several + forksText(joins, several !== "");
}

function forksText(joins: JoinsOutput, areSeveral: boolean): string {
  if (joins.num_turns === 0) return areSeveral ? "no turn after their first yet" : "no turn after the first yet";
  const ranked = Object.entries(joins.causes).sort(([, a], [, b]) => b - a);
  if (ranked.length === 0) return "every turn continued its conversation";
  return ranked.map(([cause, number]) => `${counted(cause, number)}: ${CAUSE_WORDS[cause] ?? cause}`).join("; ");
}

function counted(cause: string, number: number): string {
  return cause === REALIGNED ? plural(number, "realigned turn") : plural(number, "fork");
}
