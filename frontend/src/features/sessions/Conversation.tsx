// Shows the turns of a session: messages, tool calls, and under each sampled answer its tokens by version.
import { colourOfVersion } from "../../trajectory/colours/versionColours";
import { Card } from "../../ui/Cards";
import { plural } from "../../ui/words/format";
import { kindWord, type NodeOutput, type ShownMessage, type ShownNode } from "./nodes";

const MAX_INDENT = 6;

export function Conversation({ nodes }: { nodes: readonly ShownNode[] }) {
  return (
    <Card title="Conversation" note="sampled tokens are coloured by the policy version that produced them">
      <ol className="turns" data-testid="turns">
        {nodes.map((shown) => (
          <li
            key={shown.node.node_index}
            className={`turn ${shown.node.kind} depth-${Math.min(shown.depth, MAX_INDENT)}`}
          >
            <p className="turn-head">
              <span className="mono">#{shown.node.node_index}</span> {kindWord(shown.node.kind)},{" "}
              {plural(shown.node.num_tokens, "token")}
              {shown.marks.map((mark) => (
                <span key={mark} className="turn-mark">
                  {mark}
                </span>
              ))}
            </p>
            {shown.messages.map((message, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the messages of a node never change places
              <Message key={i} message={message} />
            ))}
            {shown.node.versions.length > 0 ? <Tokens node={shown.node} /> : null}
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Message({ message }: { message: ShownMessage }) {
  return (
    <div className={`message from-${message.role}`}>
      <span className="message-role">{message.role}</span>
      <div className="message-body">
        {message.reasoning ? <pre className="reasoning">{message.reasoning}</pre> : null}
        {message.text ? <pre>{message.text}</pre> : null}
        {message.calls.map((call, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the calls of a message never change places
          <div key={i} className="tool-call">
            <span className="mono">→ {call.name}</span>
            <pre>{call.arguments}</pre>
          </div>
        ))}
      </div>
    </div>
  );
}

function Tokens({ node }: { node: NodeOutput }) {
  const logprobs = node.logprobs ?? [];
  const ids = node.token_ids ?? [];
  return (
    <div className="tokens">
      {ids.length > 0 ? (
        <div className="token-boxes" aria-hidden="true">
          {node.versions.flatMap((span) =>
            ids.slice(span.start, span.end).map((id, i) => {
              const at = span.start + i;
              const title = `token ${at}: id ${id}, probability ${Math.exp(logprobs[at] ?? 0).toFixed(3)}, ${versionText(span.version)}`;
              return <span key={at} className="token" style={coloured(span.version)} title={title} />;
            }),
          )}
        </div>
      ) : (
        <div className="ledger-bar" aria-hidden="true">
          {node.versions.map((span) => (
            <span
              key={span.start}
              style={{
                ...coloured(span.version),
                width: `${(100 * (span.end - span.start)) / node.num_tokens}%`,
              }}
            />
          ))}
        </div>
      )}
      <p className="token-versions">
        {node.versions.map((span) => (
          <span key={span.start}>
            <span className="swatch" style={coloured(span.version)} aria-hidden="true" /> {versionText(span.version)}:{" "}
            {plural(span.end - span.start, "token")}
          </span>
        ))}
      </p>
    </div>
  );
}

function versionText(version: number): string {
  return version < 0 ? "unknown version" : `version ${version}`;
}

function coloured(version: number) {
  return { background: version < 0 ? "var(--unknown)" : colourOfVersion(version) };
}
