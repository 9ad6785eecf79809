// The forest of a group with its tools: colours, zoom, follow, outline and the panel of the selected node.
import "./forest.css";
import { useCallback, useRef, useState } from "react";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { plural } from "../../ui/words/format";
import { COLOUR_MODES, type ColourMode } from "../colours/colours";
import { nodeText } from "../forest/describe";
import { NONE } from "../forest/Forest";
import type { ForestSource } from "../forest/ForestSource";
import type { GroupTopicState } from "../wire/topic";
import { ForestCanvas, type ForestCanvasHandle, largestAdvantage } from "./ForestCanvas";
import { Legend } from "./Legend";
import { NodePanel } from "./NodePanel";
import { Outline } from "./Outline";

interface Props {
  source: ForestSource;
  state: GroupTopicState | undefined;
  /** The only session drawn in full colour. */
  sessionId?: string | undefined;
}

export function ForestView({ source, state, sessionId }: Props) {
  const [mode, setMode] = useState<ColourMode>("version");
  const [shape, setShape] = useState<"canvas" | "outline">("canvas");
  const [isFollowing, setFollowing] = useState(true);
  const [selected, setSelected] = useState(NONE);
  const [hover, setHover] = useState<Hover | null>(null);
  const canvas = useRef<ForestCanvasHandle>(null);
  const leaveFollow = useCallback(() => setFollowing(false), []);
  const hovered = useCallback(
    (node: number, x: number, y: number) => setHover(node === NONE ? null : { node, x, y }),
    [],
  );
  const { forest } = source;
  const isChosen = selected !== NONE && !forest.isGone(selected);
  const chosen = isChosen ? selected : NONE;
  const failure = source.failure || source.tokens.failure;

  if (!source.isLoaded) {
    return source.failure ? <Failure text={source.failure} /> : <Loading what="Loading forest" />;
  }
  return (
    <section className="forest" aria-label="Forest">
      <div className="forest-tools">
        <fieldset className="forest-modes">
          <legend className="visually-hidden">Token colour</legend>
          {COLOUR_MODES.map((one) => (
            <label key={one.mode}>
              <input type="radio" name="forest-colour" checked={mode === one.mode} onChange={() => setMode(one.mode)} />
              <span className="forest-mode">{one.label}</span>
            </label>
          ))}
        </fieldset>
        <span className="forest-count muted" data-testid="forest-count">
          {plural(forest.numAlive, "node")}
          {forest.numGrowing > 0 ? ` · ${forest.numGrowing} growing` : ""}
        </span>
        <div className="forest-buttons">
          <button
            type="button"
            className="forest-tool"
            aria-pressed={shape === "outline"}
            onClick={() => setShape(shape === "outline" ? "canvas" : "outline")}
          >
            <Icon name="jobs" /> Outline
          </button>
          <button
            type="button"
            className="forest-tool"
            aria-pressed={isFollowing}
            disabled={shape === "outline"}
            onClick={() => setFollowing(!isFollowing)}
          >
            <Icon name="tree" /> Follow
          </button>
          <button
            type="button"
            className="forest-tool"
            disabled={shape === "outline"}
            onClick={() => canvas.current?.fit()}
          >
            Show all
          </button>
          <button
            type="button"
            className="forest-tool square"
            aria-label="Zoom out"
            disabled={shape === "outline"}
            onClick={() => canvas.current?.zoom(1 / 1.6)}
          >
            −
          </button>
          <button
            type="button"
            className="forest-tool square"
            aria-label="Zoom in"
            disabled={shape === "outline"}
            onClick={() => canvas.current?.zoom(1.6)}
          >
            +
          </button>
        </div>
      </div>
      {failure ? <Failure text={failure} /> : null}
      <div className={isChosen ? "forest-stage with-panel" : "forest-stage"}>
        {shape === "canvas" ? (
          <ForestCanvas
            handle={canvas}
            source={source}
            mode={mode}
            selected={chosen}
            highlighted={sessionId === undefined ? NONE : forest.sessionIndex(sessionId)}
            isFollowing={isFollowing}
            label={`Forest of ${plural(forest.numAlive, "node")} in ${plural(forest.sessions.length, "session")}`}
            onSelect={setSelected}
            onHover={hovered}
            onLeaveFollow={leaveFollow}
          />
        ) : (
          <Outline source={source} selected={chosen} onSelect={setSelected} />
        )}
        {forest.numAlive === 0 ? (
          <p className="forest-empty muted">
            {state?.group?.state === "dropped"
              ? "No turn was recorded."
              : "No turn has been recorded yet. The first prompt of a session appears here."}
          </p>
        ) : null}
        {shape === "canvas" && hover && hover.node < forest.numNodes ? (
          <HoverNote source={source} hover={hover} />
        ) : null}
        {isChosen ? (
          <NodePanel
            source={source}
            node={selected}
            growing={growingOf(source, state, selected)}
            onClose={() => setSelected(NONE)}
            onShow={() => {
              setShape("canvas");
              canvas.current?.show(selected);
            }}
          />
        ) : null}
      </div>
      <Legend forest={forest} mode={mode} largestAdvantage={largestAdvantage(source)} />
      <p className="visually-hidden" role="status">
        {isChosen ? nodeText(forest, selected) : ""}
      </p>
    </section>
  );
}

interface Hover {
  node: number;
  x: number;
  y: number;
}

function HoverNote({ source, hover }: { source: ForestSource; hover: Hover }) {
  return (
    <p className="forest-hover" aria-hidden="true" style={{ left: hover.x + 14, top: hover.y + 16 }}>
      {nodeText(source.forest, hover.node)}
    </p>
  );
}

function Failure({ text }: { text: string }) {
  return (
    <p className="forest-failure" role="alert">
      <Icon name="warning" /> {text}
    </p>
  );
}

function growingOf(source: ForestSource, state: GroupTopicState | undefined, node: number) {
  const { forest } = source;
  return [...(state?.growing.values() ?? [])].find((one) => {
    const answer = forest.growingNode(one.key);
    return answer === node || (answer !== NONE && forest.parent[answer] === node);
  });
}
