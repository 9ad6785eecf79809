// Formats the messages of a node: role, content and tool calls. Pure.

export interface SaidCall {
  name: string;
  /** Indented if it is JSON, else unchanged. */
  arguments: string;
}

export interface Said {
  role: string;
  reasoning: string;
  content: string;
  calls: SaidCall[];
  /** Of a tool's answer: which call it answers. */
  callId: string;
}

type Message = Record<string, unknown>;

export function saidOf(message: Message): Said {
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as Message[]) : [];
  return {
    role: text(message.role) || "unknown",
    reasoning: text(message.reasoning_content),
    content: contentOf(message.content),
    calls: calls.map((call) => {
      const said = (call.function ?? {}) as Message;
      return { name: text(said.name), arguments: indented(text(said.arguments)) };
    }),
    callId: text(message.tool_call_id),
  };
}

/** Content is text, or a list of parts. */
function contentOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null || content === undefined ? "" : JSON.stringify(content);
  return content.map((part: Message) => (typeof part.text === "string" ? part.text : JSON.stringify(part))).join("\n");
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
