// Describes a node: its messages and tool calls, how it was sampled, and its tokens.

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { api, bodyOf } from "../../api/client";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { useTheme } from "../../ui/theme/theme";
import { floatAt, intAt, numberAt } from "../../values/columns";
import { type Mapping, mappingsIn } from "../../values/guards";
import { paletteOf, versionColour } from "../colours/colours";
import { finishText, kindText, percentText, sessionText, tokensText } from "../forest/describe";
import { type Forest, NONE, SAMPLED } from "../forest/Forest";
import type { ForestSource } from "../forest/ForestSource";
import { type ShownMessage, shownMessage } from "../wire/messages";
import type { Growing } from "../wire/topic";
import { TokenTable } from "./TokenTable";

interface Props {
  source: ForestSource;
  node: number;
  growing: Growing | undefined;
  onClose: () => void;
  onShow: () => void;
}

export function NodePanel({ source, node, growing, onClose, onShow }: Props) {
  const { forest } = source;
  const [tab, setTab] = useState<"messages" | "tokens">("messages");
  return (
    <aside className="node-panel" aria-label="Selected node">
      <header className="node-panel-head">
        <div className="node-panel-title">
          <h2>{kindText(forest, node)}</h2>
          <p className="muted">
            {[tokensText(intAt(forest.numTokens, node)), sessionText(forest, node)].filter(Boolean).join(" · ")}
          </p>
        </div>
        <button
          type="button"
          className="icon-button"
          title="Show on canvas"
          aria-label="Show on canvas"
          onClick={onShow}
        >
          <Icon name="search" />
        </button>
        <button type="button" className="icon-button" title="Close" aria-label="Close the panel" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <NodeFigures source={source} node={node} />
      <div className="node-tabs" role="tablist" aria-label="Node views">
        {(["messages", "tokens"] as const).map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`node-tab-${name}`}
            aria-controls="node-tab-panel"
            aria-selected={tab === name}
            onClick={() => setTab(name)}
          >
            {name === "messages" ? "Messages" : "Tokens"}
          </button>
        ))}
      </div>
      <div className="node-body" role="tabpanel" id="node-tab-panel" aria-labelledby={`node-tab-${tab}`}>
        {tab === "tokens" ? (
          <TokenTable key={node} source={source} node={node} />
        ) : forest.isGrowing(node) ? (
          <GrowingMessages source={source} node={node} growing={growing} />
        ) : (
          <Messages forest={forest} node={node} />
        )}
      </div>
    </aside>
  );
}

function NodeFigures({ source, node }: { source: ForestSource; node: number }) {
  const { forest } = source;
  const session = forest.sessions[intAt(forest.session, node)];
  const isSampled = forest.kind[node] === SAMPLED;
  const advantage = forest.advantage(node);
  const handovers = forest.handoverAt.get(node) ?? [];
  const mean = floatAt(forest.meanLogprob, node);
  if (!isSampled) return null;
  return (
    <dl className="node-figures">
      <Figure name="Versions">
        <VersionRuns forest={forest} node={node} />
      </Figure>
      {Number.isNaN(mean) ? null : <Figure name="Mean probability">{percentText(mean)}</Figure>}
      {handovers.length || forest.numHandovers(node) ? (
        <Figure name="Hand-overs">
          {handovers.length ? handovers.map((at) => `after token ${at}`).join(", ") : forest.numHandovers(node)}
        </Figure>
      ) : null}
      {forest.finishReason(node) ? <Figure name="Finish">{finishText(forest.finishReason(node))}</Figure> : null}
      {forest.isPartial(node) ? <Figure name="Training">not used: the answer was cut short</Figure> : null}
      {session?.reward === null || session?.reward === undefined ? null : (
        <Figure name="Session reward">
          {session.reward.toFixed(3)}
          {advantage === null ? "" : ` (advantage ${advantage > 0 ? "+" : ""}${advantage.toFixed(3)})`}
        </Figure>
      )}
      {session ? (
        <Figure name="Session">
          <Link to={`/sessions/${session.id}`} className="mono">
            {session.id}
          </Link>
        </Figure>
      ) : null}
    </dl>
  );
}

function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="node-figure">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function VersionRuns({ forest, node }: { forest: Forest; node: number }) {
  const palette = paletteOf(useTheme());
  const spans = forest.versionSpans(node);
  const runs = Array.from({ length: spans.length / 2 }, (_, run) => ({
    start: numberAt(spans, 2 * run),
    version: numberAt(spans, 2 * run + 1),
  }));
  return (
    <span className="version-runs">
      {runs.map(({ start, version }) => (
        <span className="version-run" key={start}>
          <i aria-hidden="true" style={{ background: versionColour(palette, version) }} />
          {version < 0 ? "unknown" : version}
          {start > 0 ? <small> from token {start}</small> : null}
        </span>
      ))}
    </span>
  );
}

function Messages({ forest, node }: { forest: Forest; node: number }) {
  const session = forest.sessions[intAt(forest.session, node)];
  const index = intAt(forest.index, node);
  const facts = useQuery({
    queryKey: ["node", session?.id, index],
    queryFn: () =>
      bodyOf(
        api.GET("/api/v1/sessions/{session_id}/nodes/{index}", {
          params: { path: { session_id: session?.id ?? "", index } },
        }),
      ),
    enabled: session !== undefined && index !== NONE,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (facts.error) return <p role="alert">The messages could not be read: {facts.error.message}</p>;
  if (!facts.data) return <Loading what="Loading messages" />;
  const { messages, drift, cause } = facts.data;
  return (
    <>
      {drift && drift !== "clean" ? (
        <p className="node-drift">
          <Icon name="warning" /> Joined the tree with drift: {drift} ({cause}).
        </p>
      ) : null}
      <MessageList messages={mappingsIn(messages)} />
    </>
  );
}

function GrowingMessages({
  source,
  node,
  growing,
}: {
  source: ForestSource;
  node: number;
  growing: Growing | undefined;
}) {
  if (source.forest.kind[node] !== SAMPLED) return <MessageList messages={growing?.prompt?.messages ?? []} />;
  const received = source.forest.received.get(node);
  const text =
    received && source.vocabulary ? source.vocabulary.text(received.tokens.ids.subarray(0, received.length)) : "";
  return (
    <article className="message">
      <h3>assistant</h3>
      <pre aria-busy="true">
        {text}
        <span className="caret" aria-hidden="true" />
      </pre>
    </article>
  );
}

function MessageList({ messages }: { messages: readonly Mapping[] }) {
  if (messages.length === 0) return <p className="muted">This node added no messages.</p>;
  return messages.map((message, index) => {
    const shown = shownMessage(message);
    // biome-ignore lint/suspicious/noArrayIndexKey: the messages of a node never change places
    return <Message key={index} shown={shown} />;
  });
}

function Message({ shown }: { shown: ShownMessage }) {
  return (
    <article className="message">
      <h3>
        {shown.role}
        {shown.callId ? <small className="mono"> answers {shown.callId}</small> : null}
      </h3>
      {shown.reasoning ? (
        <details>
          <summary>Reasoning</summary>
          <pre>{shown.reasoning}</pre>
        </details>
      ) : null}
      {shown.content ? <pre>{shown.content}</pre> : null}
      {shown.calls.map((call, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the calls of a message never change places
        <div className="tool-call" key={index}>
          <h4>
            <Icon name="code" /> {call.name}
          </h4>
          <pre>{call.arguments}</pre>
        </div>
      ))}
      {!shown.content && !shown.calls.length && !shown.reasoning ? <p className="muted">Empty message.</p> : null}
    </article>
  );
}
