// Draws lanes, one row per machine. Each column of pixels stacks the shares of its time by kind, so that spans shorter
// than a pixel do not hide one another.
import { clock as wallClock } from "../../ui/words/format";
import { itemAt } from "../../values/columns";
import { KINDS } from "./kinds";
import { columnsOf, columnsOver, type Lane, type Span, timeTicks } from "./lanes";
import { INK_WIDTH, patternOf, TILE } from "./patterns";

export const LANE_HEIGHT = 40;
export const AXIS_HEIGHT = 22;
const BAR_HEIGHT = 22;
const PIXELS_PER_TICK = 90;
const NEARLY_WHOLE = 0.999;

/** An edit of a machine, in its lane. */
export interface Mark {
  machine: string;
  at: number;
  wording: string;
}

export interface Scene {
  lanes: readonly Lane[];
  marks: readonly Mark[];
  windowMs: number;
  end: number;
}

export function drawLanes(canvas: HTMLCanvasElement, { lanes, marks, windowMs, end }: Scene): void {
  const width = canvas.parentElement?.clientWidth ?? 0;
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT;
  const context = sized(canvas, width, height);
  if (!context || width === 0) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const begin = end - windowMs;
  const xOf = (at: number) => ((at - begin) / windowMs) * width;
  drawAxis(context, { begin, end, width, height, xOf, ink: colour("--muted"), line: colour("--line") });
  const fills = KINDS.map(({ key }) => fillOf(context, key, colour));
  const columns = columnsOver(begin, end, width);
  const shares = new Float32Array(columns.numColumns * KINDS.length);
  const [first, last] = lanesInSight(canvas, lanes.length);
  lanes.slice(first, last).forEach((lane, i) => {
    const top = (first + i) * LANE_HEIGHT + (LANE_HEIGHT - BAR_HEIGHT) / 2;
    context.fillStyle = colour("--soft");
    context.fillRect(0, top, width, BAR_HEIGHT);
    columnsOf(spansUpTo(lane, end), columns, shares);
    drawColumns(context, { shares, left: xOf(columns.begin), top, fills });
    for (const mark of marks) {
      if (mark.machine === lane.machine.name && mark.at > begin) drawMark(context, xOf(mark.at), top, colour("--ink"));
    }
  });
}

/** Extends the open span up to now between two updates of the data. */
function spansUpTo(lane: Lane, end: number): readonly Span[] {
  const last = lane.spans.at(-1);
  const isOpen = lane.machine.is_healthy && lane.machine.open_state !== "";
  if (!last || !isOpen || last.end >= end) return lane.spans;
  return [...lane.spans.slice(0, -1), { ...last, end }];
}

/** Only lanes near the viewport are drawn. */
function lanesInSight(canvas: HTMLCanvasElement, numLanes: number): [first: number, last: number] {
  const { top } = canvas.getBoundingClientRect();
  const first = Math.floor((-top - innerHeight) / LANE_HEIGHT);
  return [Math.max(first, 0), Math.min(Math.ceil((2 * innerHeight - top) / LANE_HEIGHT), numLanes)];
}

interface Drawn {
  shares: Float32Array;
  left: number;
  top: number;
  fills: readonly (CanvasPattern | string)[];
}

/**
 * Draws each column from the bottom up in the order of KINDS. Adjacent columns that one kind fills are one rectangle.
 */
function drawColumns(context: CanvasRenderingContext2D, { shares, left, top, fills }: Drawn): void {
  const numColumns = shares.length / KINDS.length;
  for (let column = 0; column < numColumns; ) {
    const whole = wholeKind(shares, column);
    let next = column + 1;
    while (whole >= 0 && next < numColumns && wholeKind(shares, next) === whole) next++;
    const x = Math.round(left) + column;
    let bottom = top + BAR_HEIGHT;
    for (let kind = 0; kind < KINDS.length; kind++) {
      const size = (shares[column * KINDS.length + kind] ?? 0) * BAR_HEIGHT;
      if (size <= 0) continue;
      const height = Math.min(size, bottom - top);
      context.fillStyle = itemAt(fills, kind);
      context.fillRect(x, bottom - height, next - column, height);
      bottom -= height;
    }
    column = next;
  }
}

/** The only kind in a column, or -1. */
function wholeKind(shares: Float32Array, column: number): number {
  const begin = column * KINDS.length;
  for (let kind = 0; kind < KINDS.length; kind++) {
    if ((shares[begin + kind] ?? 0) > NEARLY_WHOLE) return kind;
  }
  return -1;
}

/** The fill of a kind: its colour with its strokes. */
function fillOf(
  context: CanvasRenderingContext2D,
  key: string,
  colour: (name: string) => string,
): CanvasPattern | string {
  const { colour: ground, strokes } = patternOf(key);
  if (!strokes) return colour(ground);
  const ratio = window.devicePixelRatio || 1;
  const tile = new OffscreenCanvas(Math.round(TILE * ratio), Math.round(TILE * ratio));
  const ink = tile.getContext("2d");
  if (!ink) return colour(ground);
  ink.scale(ratio, ratio);
  ink.fillStyle = colour(ground);
  ink.fillRect(0, 0, TILE, TILE);
  ink.strokeStyle = colour("--kind-ink");
  ink.lineWidth = INK_WIDTH;
  ink.lineCap = "round";
  ink.stroke(new Path2D(strokes));
  const pattern = context.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern ?? colour(ground);
}

/** Resizes a canvas to the device pixels of its box on the page, and returns its context. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

interface Axis {
  begin: number;
  end: number;
  width: number;
  height: number;
  xOf: (at: number) => number;
  ink: string;
  line: string;
}

function drawAxis(context: CanvasRenderingContext2D, { begin, end, width, height, xOf, ink, line }: Axis): void {
  context.font = "11px 'Inter Variable', sans-serif";
  context.textAlign = "center";
  context.textBaseline = "bottom";
  for (const tick of timeTicks(begin, end, Math.max(2, Math.floor(width / PIXELS_PER_TICK)))) {
    const x = Math.round(xOf(tick)) + 0.5;
    context.strokeStyle = line;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - AXIS_HEIGHT + 4);
    context.stroke();
    context.fillStyle = ink;
    if (x > 30 && x < width - 30) context.fillText(wallClock(tick), x, height - 2);
  }
}

function drawMark(context: CanvasRenderingContext2D, x: number, top: number, ink: string): void {
  context.strokeStyle = ink;
  context.fillStyle = ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, top - 5);
  context.lineTo(x, top + BAR_HEIGHT + 3);
  context.stroke();
  context.beginPath();
  context.moveTo(x - 4, top - 8);
  context.lineTo(x + 4, top - 8);
  context.lineTo(x, top - 2);
  context.fill();
}
