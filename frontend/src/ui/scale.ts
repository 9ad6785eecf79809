// The scale that curves share. Pure.

export type Scale = readonly [low: number, high: number];

// A scale is wider than zero, so that level curves have a height.
const MIN_WIDTH = 1e-9;

/** The scale from the smallest to the largest value of all curves; undefined if there is no value. */
export function scaleOf(curves: readonly (readonly (readonly [x: number, y: number])[])[]): Scale | undefined {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const [, y] of curves.flat()) {
    low = Math.min(low, y);
    high = Math.max(high, y);
  }
  return low > high ? undefined : [low, Math.max(high, low + MIN_WIDTH)];
}
