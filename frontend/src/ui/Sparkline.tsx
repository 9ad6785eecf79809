// A word-sized curve. It repeats what the row says in figures, so it is hidden from screen readers.

const WIDTH = 96;
const HEIGHT = 22;
const MARGIN = 2;

export function Sparkline({ points }: { points: readonly (readonly [x: number, y: number])[] }) {
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last || points.length < 2) return <span className="sparkline-empty" aria-hidden="true" />;
  const values = points.map(([, y]) => y);
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-9);
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
