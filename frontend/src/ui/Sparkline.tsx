// A word-sized curve. It repeats what the row says in figures, so it is hidden from screen readers. Curves that stand below
// one another have one scale: equal heights are equal values.
import type { Scale } from "./scale";

const WIDTH = 96;
const HEIGHT = 22;
const MARGIN = 2;

interface Props {
  points: readonly (readonly [x: number, y: number])[];
  scale: Scale;
}

export function Sparkline({ points, scale: [low, high] }: Props) {
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last || points.length < 2) return <span className="sparkline-empty" aria-hidden="true" />;
  const at = ([x, y]: readonly [number, number]) =>
    [
      MARGIN + ((x - first[0]) / (last[0] - first[0])) * (WIDTH - 2 * MARGIN),
      MARGIN + ((high - y) / (high - low)) * (HEIGHT - 2 * MARGIN),
    ] as const;
  const [endX, endY] = at(last);
  return (
    <svg className="sparkline" width={WIDTH} height={HEIGHT} aria-hidden="true">
      <polyline
        points={points
          .map((point) =>
            at(point)
              .map((n) => n.toFixed(1))
              .join(),
          )
          .join(" ")}
      />
      <circle cx={endX} cy={endY} r="2" />
    </svg>
  );
}
