// Prepares a session's tree for its page: nodes depth first, indented where it branches, with their messages. Pure.
import type { Schemas } from "../../api/client";
import { finishText } from "../../trajectory/forest/describe";
import { isMapping, mappingsIn } from "../../values/guards";

export type NodeOutput = Schemas["NodeOutput"];

export interface ToolCall {
  name: string;
  arguments: string;
}

export interface ShownMessage {
  role: string;
  text: string;
  reasoning: string;
  calls: ToolCall[];
}

export interface ShownNode {
  node: NodeOutput;
  /** Number of forks above. */
  depth: number;
  messages: ShownMessage[];
  marks: string[];
}

const PLAIN_FINISHES = new Set([null, "stop", "tool_calls"]);
const LONG_GAP_S = 1;

/** The same words as in the forest. */
export function kindWord(kind: string): string {
  return { root: "task prompt", prompt: "added by the agent", sampled: "answer" }[kind] ?? kind;
}

/** Depth first. An only child stays at its parent's depth. */
export function shownNodes(nodes: readonly NodeOutput[]): ShownNode[] {
  const children = new Map<number | null, NodeOutput[]>();
  for (const node of nodes) children.set(node.parent_index, [...(children.get(node.parent_index) ?? []), node]);
  const order: ShownNode[] = [];
  const pending = (children.get(null) ?? []).map((node) => ({ node, depth: 0 })).reverse();
  for (let next = pending.pop(); next; next = pending.pop()) {
    const { node, depth } = next;
    order.push({ node, depth, messages: messagesOf(node), marks: marksOf(node) });
    const below = children.get(node.node_index) ?? [];
    const deeper = depth + (below.length > 1 ? 1 : 0);
    pending.push(...below.map((child) => ({ node: child, depth: deeper })).reverse());
  }
  return order;
}

function messagesOf(node: NodeOutput): ShownMessage[] {
  return mappingsIn(node.messages).map((message) => ({
    role: String(message.role ?? ""),
    text: textOf(message.content),
    reasoning: textOf(message.reasoning_content ?? message.reasoning),
    calls: callsOf(message.tool_calls),
  }));
}

function textOf(content: unknown): string {
  if (content === null || content === undefined) return "";
  return typeof content === "string" ? content : JSON.stringify(content, null, 2);
}

function callsOf(calls: unknown): ToolCall[] {
  return mappingsIn(calls).map((call) => {
    const { name, arguments: given } = isMapping(call.function) ? call.function : {};
    return { name: String(name ?? ""), arguments: pretty(given) };
  });
}

/** Indents arguments that are JSON, and shows any other text as it is. */
function pretty(text: unknown): string {
  if (typeof text !== "string") return textOf(text);
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

function marksOf(node: NodeOutput): string[] {
  const marks: string[] = [];
  if (node.is_partial) marks.push("partial, not used for training");
  if (node.num_handovers > 0) marks.push(`handed over ${node.num_handovers}×, continued ${node.num_continuations}×`);
  if (node.drift !== null && node.drift !== "clean") marks.push([node.drift, node.cause].filter(Boolean).join(": "));
  if (node.max_gap_s !== null && node.max_gap_s >= LONG_GAP_S) marks.push(`largest gap ${node.max_gap_s.toFixed(1)} s`);
  if (!PLAIN_FINISHES.has(node.finish_reason))
    marks.push(finishText(String(node.finish_reason)) || String(node.finish_reason));
  if (node.num_wasted_tokens > 0) marks.push(`${node.num_wasted_tokens} tokens discarded`);
  return marks;
}
