// Describes nodes in words, for the panel, the outline and the tooltip. Pure.
import { NONE as MISSING, plural } from "../../ui/words/format";
import { intAt } from "../../values/columns";
import { type Forest, PROMPT, ROOT, SAMPLED, UNKNOWN_VERSION } from "./Forest";

export function tokensSaid(count: number): string {
  return plural(count, "token");
}

export function kindSaid(forest: Forest, node: number): string {
  if (forest.kind[node] === SAMPLED) return forest.isGrowing(node) ? "Answer, growing" : "Answer";
  return forest.kind[node] === ROOT ? "Task prompt" : "Added by the agent";
}

/** "version 3", "versions 3 → 4"; empty for nodes that were not sampled. */
export function versionsSaid(forest: Forest, node: number): string {
  if (forest.kind[node] !== SAMPLED) return "";
  const versions = forest.versionSpans(node).filter((_, place) => place % 2 === 1);
  const said = versions.map((version) => (version === UNKNOWN_VERSION ? "unknown" : String(version)));
  if (said.length === 0) return "";
  return `${said.length > 1 ? "versions" : "version"} ${said.join(" → ")}`;
}

export function sessionSaid(forest: Forest, node: number): string {
  const session = forest.sessions[intAt(forest.session, node)];
  if (!session || forest.kind[node] === ROOT) return "";
  return `session ${session.slot + 1}${session.attempt > 1 ? `, attempt ${session.attempt}` : ""}`;
}

export function finishSaid(reason: string): string {
  return (
    { stop: "stopped", length: "hit the token limit", tool_calls: "called a tool", abort: "cut short" }[reason] ?? ""
  );
}

/** A line for lists and tooltips: "Answer · 34 tokens · versions 3 → 4 · session 2". */
export function nodeSaid(forest: Forest, node: number): string {
  const handovers = forest.numHandovers(node);
  return [
    kindSaid(forest, node),
    tokensSaid(intAt(forest.numTokens, node)),
    versionsSaid(forest, node),
    handovers > 0 ? plural(handovers, "hand-over") : "",
    forest.kind[node] === SAMPLED ? finishSaid(forest.finishReason(node)) : "",
    forest.isPartial(node) ? "not used for training" : "",
    sessionSaid(forest, node),
  ]
    .filter(Boolean)
    .join(" · ");
}

export function isPromptKind(forest: Forest, node: number): boolean {
  return forest.kind[node] === ROOT || forest.kind[node] === PROMPT;
}

export function percentSaid(logprob: number): string {
  if (Number.isNaN(logprob)) return MISSING;
  const percent = 100 * Math.exp(logprob);
  return percent >= 99.95 ? "100%" : percent >= 0.1 ? `${percent.toFixed(1)}%` : "<0.1%";
}
