// The canvas: pans, zooms, picks nodes and follows growth. Draws at most once per frame, and only after a change.

import { type KeyboardEvent, type PointerEvent, useCallback, useEffect, useImperativeHandle, useRef } from "react";
import { theme, useTheme } from "../../ui/theme/theme";
import { floatAt, intAt } from "../../values/columns";
import { type ColourMode, type Palette, paletteOf } from "../colours/colours";
import { Forest, NONE, SAMPLED } from "../forest/Forest";
import type { ForestSource } from "../forest/ForestSource";
import { type Layout, layoutOf, stretch, widthOf } from "../geometry/layout";
import {
  clamp,
  clamped,
  fitView,
  MAX_PX_PER_TOKEN,
  panned,
  resized,
  screenX,
  screenY,
  toWorld,
  type View,
  zoomed,
} from "../geometry/view";
import { nodeAt, type Visible, visibleOf } from "../geometry/visible";
import { CELLS_FROM_PX, paint, stripHeight, tokensInSight } from "./paint";

export interface ForestCanvasHandle {
  fit: () => void;
  zoom: (factor: number) => void;
  /** Brings a node, or one of its tokens, into sight at a readable size. */
  show: (node: number, token?: number) => void;
}

interface Props {
  source: ForestSource;
  mode: ColourMode;
  selected: number;
  highlighted: number;
  isFollowing: boolean;
  label: string;
  onSelect: (node: number) => void;
  onHover: (node: number, x: number, y: number) => void;
  onLeaveFollow: () => void;
  handle: React.Ref<ForestCanvasHandle>;
}

const WHEEL_STEP = 0.0016;
const KEY_ZOOM = 1.25;
const KEY_PAN_PX = 60;
const CLICK_SLACK_PX = 4;
const PULSE_EVERY_MS = 100;
const READABLE_PX_PER_ROW = 26;
const NO_LAYOUT = layoutOf(new Forest());

/** State that only the canvas uses. It changes with every movement, so it is kept out of React. */
interface Stage {
  layout: Layout;
  structure: number;
  view: View;
  visible: Visible;
  hovered: number;
  isMoved: boolean;
  frame: number;
  drag: { x: number; y: number; isDrag: boolean } | null;
}

export function ForestCanvas(props: Props) {
  const { source, handle } = props;
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(props);
  const stage = useRef<Stage>(stageMake());
  const palette = useRef<Palette>(paletteOf(theme()));
  const chosenTheme = useTheme();

  const draw = useCallback(() => {
    stage.current.frame = 0;
    const context = canvas.current?.getContext("2d");
    if (context) drawFrame(context, stage.current, latest.current, palette.current);
  }, []);
  const request = useCallback(() => {
    if (!stage.current.frame) stage.current.frame = requestAnimationFrame(draw);
  }, [draw]);
  const move = useCallback(
    (change: (view: View) => View) => {
      const { current } = stage;
      current.view = clamped(change(current.view), current.layout);
      current.isMoved = true;
      if (latest.current.isFollowing) latest.current.onLeaveFollow();
      request();
    },
    [request],
  );

  useEffect(() => {
    latest.current = props;
    palette.current = paletteOf(chosenTheme);
    request();
  });
  useEffect(() => {
    const stop = source.subscribe(request);
    // A caret pulses at the end of growing answers. Without any, nothing is drawn.
    const pulse = setInterval(() => {
      if (source.forest.numGrowing > 0) request();
    }, PULSE_EVERY_MS);
    return () => {
      stop();
      clearInterval(pulse);
      cancelAnimationFrame(stage.current.frame);
      stage.current.frame = 0;
    };
  }, [source, request]);
  useEffect(() => watchSize(host.current, canvas.current, stage.current, draw), [draw]);
  useEffect(() => {
    const { current } = canvas;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      move((view) => wheeled(view, event));
    };
    current?.addEventListener("wheel", onWheel, { passive: false });
    return () => current?.removeEventListener("wheel", onWheel);
  }, [move]);
  useImperativeHandle(handle, () => ({
    fit: () => {
      stage.current.isMoved = false;
      request();
    },
    zoom: (factor) => move((view) => zoomed(view, factor, view.width / 2, view.height / 2)),
    show: (node, token) => move((view) => shown(view, stage.current.layout, source, node, token)),
  }));

  return (
    <div
      className="forest-canvas"
      ref={host}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: keys operate it, and the outline says the same in words
      tabIndex={0}
      role="application"
      aria-label={props.label}
      aria-describedby="forest-keys"
      onKeyDown={(event) => keyed(event, stage.current, props, move, request)}
    >
      <canvas
        ref={canvas}
        onPointerDown={(event) => pressed(event, stage.current)}
        onPointerMove={(event) => moved(event, stage.current, props, move, request)}
        onPointerUp={(event) => released(event, stage.current, props)}
        onPointerLeave={() => {
          stage.current.hovered = NONE;
          props.onHover(NONE, 0, 0);
          request();
        }}
        onDoubleClick={(event) => {
          const { offsetX, offsetY } = event.nativeEvent;
          move((view) => zoomed(view, 3, offsetX, offsetY));
        }}
      />
      <p id="forest-keys" className="visually-hidden">
        Arrow keys move between nodes, plus and minus zoom, zero shows everything, and shift with arrow keys pans. The
        outline lists the same nodes.
      </p>
    </div>
  );
}

function stageMake(): Stage {
  return {
    layout: NO_LAYOUT,
    structure: -1,
    view: fitView(NO_LAYOUT, { width: 1, height: 1 }),
    visible: { nodes: [], forks: [] },
    hovered: NONE,
    isMoved: false,
    frame: 0,
    drag: null,
  };
}

function drawFrame(context: CanvasRenderingContext2D, stage: Stage, props: Props, palette: Palette): void {
  const { source } = props;
  const { forest } = source;
  if (stage.structure !== forest.structure) {
    stage.layout = layoutOf(forest);
    stage.structure = forest.structure;
  } else stretch(forest, stage.layout, forest.growingNodes());
  // The view fits the whole forest until the user moves it, and afterwards only while following.
  if (!stage.isMoved || props.isFollowing) stage.view = fitView(stage.layout, stage.view);
  if (props.isFollowing) stage.isMoved = false;
  stage.visible = visibleOf(forest, stage.layout, stage.view);
  const ratio = context.canvas.width / Math.max(stage.view.width, 1);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = fontsOf(context.canvas);
  paint(context, {
    forest,
    layout: stage.layout,
    view: stage.view,
    visible: stage.visible,
    palette,
    mode: props.mode,
    largestAdvantage: largestAdvantage(source),
    cache: source.tokens,
    vocabulary: source.vocabulary,
    selected: props.selected,
    hovered: stage.hovered,
    highlighted: props.highlighted,
    now: performance.now(),
    ...style,
  });
  requestTokens(stage, props);
  if (forest.numAlive > 0 && !performance.getEntriesByName("forest-painted").length) performance.mark("forest-painted");
}

let fonts: { monospace: string; sans: string } | null = null;
function fontsOf(canvas: HTMLCanvasElement): { monospace: string; sans: string } {
  if (!fonts) {
    const style = getComputedStyle(canvas);
    fonts = { monospace: style.getPropertyValue("--mono"), sans: style.getPropertyValue("--sans") };
  }
  return fonts;
}

export function largestAdvantage(source: ForestSource): number {
  return source.forest.sessions.reduce((most, session) => Math.max(most, Math.abs(session.advantage ?? 0)), 0);
}

/** Tokens are needed where cells are drawn, and in logprob mode where strips are wide enough to show a gradient. */
function requestTokens(stage: Stage, { source, mode }: Props): void {
  const { forest } = source;
  const { view, layout } = stage;
  const isNear = view.pxPerToken >= CELLS_FROM_PX;
  if (!isNear && (mode !== "logprob" || stripHeight(view) < 2)) return source.tokens.request([]);
  source.tokens.request(
    stage.visible.nodes
      .filter((node) => isNear || (forest.kind[node] === SAMPLED && widthOf(forest, node) * view.pxPerToken >= 12))
      .map((node) => {
        const [start, end] = tokensInSight({ forest, layout, view }, node);
        return { node, start, end };
      })
      .filter(({ start, end }) => end > start),
  );
}

function watchSize(
  host: HTMLDivElement | null,
  canvas: HTMLCanvasElement | null,
  stage: Stage,
  draw: () => void,
): () => void {
  if (!host || !canvas) return () => {};
  const observer = new ResizeObserver(([entry]) => {
    if (!entry) return;
    const { width, height } = entry.contentRect;
    if (width < 1 || height < 1) return;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    stage.view = resized(stage.view, { width, height });
    // Resizing clears a canvas, so it is redrawn at once.
    draw();
  });
  observer.observe(host);
  return () => observer.disconnect();
}

function wheeled(view: View, event: WheelEvent): View {
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return panned(view, -event.deltaX, 0);
  const axis = event.shiftKey ? "tokens" : event.altKey ? "rows" : "both";
  return zoomed(view, Math.exp(-clamp(event.deltaY, -400, 400) * WHEEL_STEP), event.offsetX, event.offsetY, axis);
}

function shown(view: View, layout: Layout, source: ForestSource, node: number, token?: number): View {
  if (node === NONE || node >= layout.y.length) return view;
  const pxPerRow = Math.max(view.pxPerRow, READABLE_PX_PER_ROW);
  const width = widthOf(source.forest, node);
  const fitting = clamp((view.width * 0.6) / width, 0, MAX_PX_PER_TOKEN);
  const pxPerToken = token === undefined ? fitting : Math.max(view.pxPerToken, MAX_PX_PER_TOKEN / 2);
  const middle = floatAt(layout.x, node) + (token ?? width / 2);
  return {
    ...view,
    pxPerRow,
    pxPerToken,
    left: middle - view.width / 2 / pxPerToken,
    top: floatAt(layout.y, node) + 0.5 - view.height / 2 / pxPerRow,
  };
}

function pressed(event: PointerEvent<HTMLCanvasElement>, stage: Stage): void {
  if (event.button !== 0) return;
  event.currentTarget.setPointerCapture(event.pointerId);
  stage.drag = { x: event.nativeEvent.offsetX, y: event.nativeEvent.offsetY, isDrag: false };
}

function moved(
  event: PointerEvent<HTMLCanvasElement>,
  stage: Stage,
  props: Props,
  move: (change: (view: View) => View) => void,
  request: () => void,
): void {
  const { offsetX, offsetY } = event.nativeEvent;
  const { drag } = stage;
  if (drag) {
    const [dx, dy] = [offsetX - drag.x, offsetY - drag.y];
    if (!drag.isDrag && Math.hypot(dx, dy) < CLICK_SLACK_PX) return;
    stage.drag = { x: offsetX, y: offsetY, isDrag: true };
    return move((view) => panned(view, dx, dy));
  }
  const hovered = picked(stage, props.source, offsetX, offsetY);
  if (hovered !== stage.hovered) {
    stage.hovered = hovered;
    request();
  }
  props.onHover(hovered, offsetX, offsetY);
}

function released(event: PointerEvent<HTMLCanvasElement>, stage: Stage, props: Props): void {
  const wasClick = stage.drag !== null && !stage.drag.isDrag;
  stage.drag = null;
  if (wasClick) props.onSelect(picked(stage, props.source, event.nativeEvent.offsetX, event.nativeEvent.offsetY));
}

function picked(stage: Stage, source: ForestSource, x: number, y: number): number {
  const world = toWorld(stage.view, x, y);
  return nodeAt(source.forest, stage.layout, stage.view, world.x, world.y);
}

function keyed(
  event: KeyboardEvent,
  stage: Stage,
  props: Props,
  move: (change: (view: View) => View) => void,
  request: () => void,
): void {
  const { key } = event;
  const middle = (view: View, factor: number) => zoomed(view, factor, view.width / 2, view.height / 2);
  if (key === "+" || key === "=") move((view) => middle(view, KEY_ZOOM));
  else if (key === "-") move((view) => middle(view, 1 / KEY_ZOOM));
  else if (key === "0") {
    stage.isMoved = false;
    request();
  } else if (key === "Escape") props.onSelect(NONE);
  else if (key.startsWith("Arrow")) {
    if (event.shiftKey) move((view) => panned(view, ...panBy(key)));
    else step(key, stage, props, move);
  } else return;
  event.preventDefault();
}

function panBy(key: string): [number, number] {
  if (key === "ArrowLeft") return [KEY_PAN_PX, 0];
  if (key === "ArrowRight") return [-KEY_PAN_PX, 0];
  return [0, key === "ArrowUp" ? KEY_PAN_PX : -KEY_PAN_PX];
}

/** Selects another node: left the parent, right the first child, up and down the neighbours. */
function step(key: string, stage: Stage, props: Props, move: (change: (view: View) => View) => void): void {
  const { forest } = props.source;
  const { layout } = stage;
  const from = props.selected;
  const next =
    from === NONE || from >= layout.y.length ? (layout.roots[0] ?? NONE) : neighbour(key, from, layout, props);
  if (next === NONE) return;
  props.onSelect(next);
  const x = screenX(stage.view, floatAt(layout.x, next) + widthOf(forest, next) / 2);
  const y = screenY(stage.view, floatAt(layout.y, next));
  const { width, height } = stage.view;
  if (x < 0 || x > width || y < 0 || y > height) move((view) => panned(view, width / 2 - x, height / 2 - y));
}

function neighbour(key: string, from: number, layout: Layout, { source }: Props): number {
  const { forest } = source;
  const parent = intAt(forest.parent, from);
  if (key === "ArrowLeft") return parent;
  const [first, end] = [intAt(layout.firstOf, from), intAt(layout.firstOf, from + 1)];
  if (key === "ArrowRight") return first < end ? intAt(layout.children, first) : NONE;
  const siblings =
    parent === NONE ? layout.roots : [...layout.children.subarray(layout.firstOf[parent], layout.firstOf[parent + 1])];
  return siblings[siblings.indexOf(from) + (key === "ArrowDown" ? 1 : -1)] ?? NONE;
}
