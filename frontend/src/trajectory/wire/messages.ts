// Formats the messages of a node: role, content and tool calls. Pure.
import { isMapping, type Mapping, mappingsIn } from "../../values/guards";

export interface ShownCall {
  name: string;
  /** Indented if it is JSON, else unchanged. */
  arguments: string;
}

export interface ShownMessage {
  role: string;
  reasoning: string;
  content: string;
  calls: ShownCall[];
  /** For a tool's answer, the call that it answers. */
  callId: string;
}

export function shownMessage(message: Mapping): ShownMessage {
  return {
    role: text(message.role) || "unknown",
    reasoning: text(message.reasoning_content),
    content: contentOf(message.content),
    calls: mappingsIn(message.tool_calls).map((call) => {
      const called = isMapping(call.function) ? call.function : {};
      return { name: text(called.name), arguments: indented(text(called.arguments)) };
    }),
    callId: text(message.tool_call_id),
  };
}

/** Content is text, or a list of parts. */
function contentOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null || content === undefined ? "" : JSON.stringify(content);
  return content
    .map((part: unknown) => (isMapping(part) && typeof part.text === "string" ? part.text : JSON.stringify(part)))
    .join("\n");
}

function indented(source: string): string {
  try {
    return JSON.stringify(JSON.parse(source), null, 2);
  } catch {
    return source;
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value);
}
