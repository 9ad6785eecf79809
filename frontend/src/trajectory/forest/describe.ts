// Describes nodes in words, for the panel, the outline and the tooltip. Pure.
import { NONE as MISSING, plural } from "../../ui/words/format";
import { intAt } from "../../values/columns";
import { type Forest, PROMPT, ROOT, SAMPLED, UNKNOWN_VERSION } from "./Forest";

export function tokensText(count: number): string {
  return plural(count, "token");
}

export function kindText(forest: Forest, node: number): string {
  if (forest.kind[node] === SAMPLED) return forest.isGrowing(node) ? "Answer, growing" : "Answer";
  return forest.kind[node] === ROOT ? "Task prompt" : "Added by the agent";
}

/** "version 3", "versions 3 → 4"; empty for nodes that were not sampled. */
export function versionsText(forest: Forest, node: number): string {
  if (forest.kind[node] !== SAMPLED) return "";
  const versions = forest.versionSpans(node).filter((_, index) => index % 2 === 1);
  const wording = versions.map((version) => (version === UNKNOWN_VERSION ? "unknown" : String(version)));
  if (wording.length === 0) return "";
  return `${wording.length > 1 ? "versions" : "version"} ${wording.join(" → ")}`;
}

export function sessionText(forest: Forest, node: number): string {
  const session = forest.sessions[intAt(forest.session, node)];
  if (!session || forest.kind[node] === ROOT) return "";
  return `session ${session.slot + 1}${session.attempt > 1 ? `, attempt ${session.attempt}` : ""}`;
}

export function finishText(reason: string): string {
  return (
    { stop: "stopped", length: "hit the token limit", tool_calls: "called a tool", abort: "cut short" }[reason] ?? ""
  );
}

/** A line for lists and tooltips: "Answer · 34 tokens · versions 3 → 4 · session 2". */
export function nodeText(forest: Forest, node: number): string {
  const handovers = forest.numHandovers(node);
  return [
    kindText(forest, node),
    tokensText(intAt(forest.numTokens, node)),
    versionsText(forest, node),
    handovers > 0 ? plural(handovers, "hand-over") : "",
    forest.kind[node] === SAMPLED ? finishText(forest.finishReason(node)) : "",
    forest.isPartial(node) ? "not used for training" : "",
    sessionText(forest, node),
  ]
    .filter(Boolean)
    .join(" · ");
}

export function isPromptKind(forest: Forest, node: number): boolean {
  return forest.kind[node] === ROOT || forest.kind[node] === PROMPT;
}

export function percentText(logprob: number): string {
  if (Number.isNaN(logprob)) return MISSING;
  const percent = 100 * Math.exp(logprob);
  return percent >= 99.95 ? "100%" : percent >= 0.1 ? `${percent.toFixed(1)}%` : "<0.1%";
}
