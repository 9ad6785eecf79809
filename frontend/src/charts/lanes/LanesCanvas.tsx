// The canvas of lanes, redrawn four times a second while the page is visible, with a tooltip at the pointer.
import { type PointerEvent, useLayoutEffect, useRef, useState } from "react";
import { useTheme } from "../../ui/theme/theme";
import { AXIS_HEIGHT, drawLanes, LANE_HEIGHT, type Mark } from "./drawLanes";
import type { Lane } from "./lanes";
import { textAt } from "./laneWords";

export type { Mark } from "./drawLanes";

const FRAME_MS = 250;
const TIP_WIDTH = 240;

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
  wording: string;
}

export function LanesCanvas({ lanes, marks, windowMs, clock, label }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const theme = useTheme();
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT;
  const current = useRef({ lanes, marks, windowMs });
  current.current = { lanes, marks, windowMs };

  // biome-ignore lint/correctness/useExhaustiveDependencies: drawing reads the colours, which follow `theme`, and the number of lanes, which sets `height`.
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
    const wording = mark?.wording ?? (lane ? textAt(lane.spans, at, windowMs / box.width) : null);
    setHover(
      wording
        ? {
            x: Math.max(0, Math.min(x, box.width - TIP_WIDTH)),
            y: (Math.floor(y / LANE_HEIGHT) + 1) * LANE_HEIGHT - 4,
            wording,
          }
        : null,
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
          {hover.wording}
        </div>
      ) : null}
    </div>
  );
}
