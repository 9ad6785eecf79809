// Lanes on one canvas: a row per machine, drawn four times a second while the page is looked at. Every value is in the
// table beside it as well. Idle is hatched, so that it does not lean on its colour.
import { type PointerEvent, useLayoutEffect, useRef, useState } from "react";
import { duration, clock as wallClock } from "../ui/format";
import { useTheme } from "../ui/theme";
import { CAUSES, describeState, type Lane, type Span, STATES, spanAt, timeTicks } from "./lanes";

export const LANE_HEIGHT = 40;
const BAR_HEIGHT = 22;
const AXIS_HEIGHT = 22;
const FRAME_MS = 250;
const PIXELS_PER_TICK = 90;
const HATCH = 5;

export interface Mark {
  machine: string;
  at: number;
  said: string;
}

interface Props {
  lanes: readonly Lane[];
  marks: readonly Mark[];
  windowMs: number;
  clock: () => number;
  label: string;
}

interface Hover {
  x: number;
  y: number;
  said: string;
}

export function LanesCanvas({ lanes, marks, windowMs, clock, label }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const theme = useTheme();
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT;
  const current = useRef({ lanes, marks, windowMs });
  current.current = { lanes, marks, windowMs };

  // biome-ignore lint/correctness/useExhaustiveDependencies: `theme` stands for the colours, `height` for the number of lanes.
  useLayoutEffect(() => {
    const draw = () => {
      if (canvas.current && document.visibilityState === "visible") {
        drawLanes(canvas.current, { ...current.current, end: clock() });
      }
    };
    draw();
    const timer = setInterval(draw, FRAME_MS);
    return () => clearInterval(timer);
  }, [clock, theme, height]);

  const look = (event: PointerEvent<HTMLCanvasElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const lane = lanes[Math.floor(y / LANE_HEIGHT)];
    const end = clock();
    const at = end - windowMs + (x / box.width) * windowMs;
    const mark = marks.find((one) => one.machine === lane?.machine.name && Math.abs(one.at - at) < windowMs / 200);
    const span = lane ? spanAt(lane.spans, at) : null;
    const said = mark?.said ?? (span ? spanSaid(span) : null);
    setHover(
      said ? { x: Math.min(x, box.width - 240), y: (Math.floor(y / LANE_HEIGHT) + 1) * LANE_HEIGHT - 4, said } : null,
    );
  };
  return (
    <div className="lanes-canvas">
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        style={{ height }}
        onPointerMove={look}
        onPointerLeave={() => setHover(null)}
      />
      {hover ? (
        <div className="tip" style={{ left: hover.x, top: hover.y }}>
          {hover.said}
        </div>
      ) : null}
    </div>
  );
}

function spanSaid(span: Span): string {
  const said = `${describeState(span.state, span.cause)}, ${duration(span.end - span.start)} from ${wallClock(span.start)}`;
  const meaning = CAUSES[span.cause]?.meaning;
  return meaning ? `${said}. ${meaning}` : said;
}

interface Scene {
  lanes: readonly Lane[];
  marks: readonly Mark[];
  windowMs: number;
  end: number;
}

function drawLanes(canvas: HTMLCanvasElement, { lanes, marks, windowMs, end }: Scene): void {
  const width = canvas.parentElement?.clientWidth ?? 0;
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT;
  const context = sized(canvas, width, height);
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const colours = Object.fromEntries(STATES.map((state) => [state, colour(`--${state}`)]));
  const begin = end - windowMs;
  const place = (at: number) => ((at - begin) / windowMs) * width;
  drawAxis(context, { begin, end, width, height, place, ink: colour("--muted"), line: colour("--line") });
  lanes.forEach((lane, row) => {
    const top = row * LANE_HEIGHT + (LANE_HEIGHT - BAR_HEIGHT) / 2;
    context.fillStyle = colour("--soft");
    context.fillRect(0, top, width, BAR_HEIGHT);
    for (const span of lane.spans) {
      // What is open reaches up to now, between two looks at the data as well.
      const isOpen = span === lane.spans.at(-1) && lane.machine.is_healthy && lane.machine.open_state !== "";
      const from = Math.max(place(span.start), 0);
      const to = Math.min(isOpen ? width : place(span.end), width);
      if (to <= from) continue;
      context.fillStyle = colours[span.state] ?? (colours.unknown as string);
      context.fillRect(from, top, Math.max(to - from, 0.75), BAR_HEIGHT);
      if (span.state === "idle") hatch(context, { from, to, top, ink: colour("--muted") });
    }
    for (const mark of marks) {
      if (mark.machine === lane.machine.name && mark.at > begin)
        drawMark(context, place(mark.at), top, colour("--ink"));
    }
  });
}

/** The context of a canvas with as many pixels as its place has on the device; the page says how large that is. */
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
  place: (at: number) => number;
  ink: string;
  line: string;
}

function drawAxis(context: CanvasRenderingContext2D, { begin, end, width, height, place, ink, line }: Axis): void {
  context.font = "11px 'Inter Variable', sans-serif";
  context.textAlign = "center";
  context.textBaseline = "bottom";
  for (const tick of timeTicks(begin, end, Math.max(2, Math.floor(width / PIXELS_PER_TICK)))) {
    const x = Math.round(place(tick)) + 0.5;
    context.strokeStyle = line;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - AXIS_HEIGHT + 4);
    context.stroke();
    context.fillStyle = ink;
    if (x > 30 && x < width - 30) context.fillText(wallClock(tick), x, height - 2);
  }
}

function hatch(context: CanvasRenderingContext2D, area: { from: number; to: number; top: number; ink: string }): void {
  const { from, to, top, ink } = area;
  context.save();
  context.beginPath();
  context.rect(from, top, to - from, BAR_HEIGHT);
  context.clip();
  context.strokeStyle = ink;
  context.globalAlpha = 0.28;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = from - (from % HATCH) - BAR_HEIGHT; x < to; x += HATCH) {
    context.moveTo(x, top + BAR_HEIGHT);
    context.lineTo(x + BAR_HEIGHT, top);
  }
  context.stroke();
  context.restore();
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
