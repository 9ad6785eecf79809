// The section of a forest that the canvas shows: pan, zoom, fit. Pure; a view is a value.
//
// Each axis has its own scale, pixels per token and pixels per row, so a branch of 100,000 tokens and 10,000 branches
// fit the same canvas. Zooming changes both scales until rows are high enough to read; after that only tokens grow.
import type { Layout } from "./layout";

export interface View {
  /** World coordinates of the upper left corner, in tokens and rows. */
  left: number;
  top: number;
  pxPerToken: number;
  pxPerRow: number;
  width: number;
  height: number;
}

export interface Size {
  width: number;
  height: number;
}

export const MAX_PX_PER_TOKEN = 72;
export const MAX_PX_PER_ROW = 44;
const MARGIN_PX = 28;
/** Leaves space for the rewards written beside the ends of branches. */
const RIGHT_MARGIN_PX = 76;
const MIN_PX_PER_ROW = 0.01;
const MIN_PX_PER_TOKEN = 1e-4;

export function fitView(layout: Pick<Layout, "width" | "height">, size: Size): View {
  return boxView({ left: 0, right: layout.width, top: 0, bottom: layout.height }, size);
}

/** The view that centres a box of the world and leaves a margin around it. */
export function boxView(box: { left: number; right: number; top: number; bottom: number }, size: Size): View {
  const pxPerToken = clamp(
    (size.width - MARGIN_PX - RIGHT_MARGIN_PX) / Math.max(box.right - box.left, 1),
    MIN_PX_PER_TOKEN,
    MAX_PX_PER_TOKEN,
  );
  const pxPerRow = clamp(
    (size.height - 2 * MARGIN_PX) / Math.max(box.bottom - box.top, 1),
    MIN_PX_PER_ROW,
    MAX_PX_PER_ROW,
  );
  return {
    ...size,
    pxPerToken,
    pxPerRow,
    left: (box.left + box.right) / 2 - (size.width + MARGIN_PX - RIGHT_MARGIN_PX) / 2 / pxPerToken,
    top: (box.top + box.bottom) / 2 - size.height / 2 / pxPerRow,
  };
}

export function resized(view: View, size: Size): View {
  return { ...view, ...size };
}

export function panned(view: View, dx: number, dy: number): View {
  return { ...view, left: view.left - dx / view.pxPerToken, top: view.top - dy / view.pxPerRow };
}

/** Scales both axes, or the named one, by `factor`. The point at (x, y) pixels stays where it is. */
export function zoomed(
  view: View,
  factor: number,
  x: number,
  y: number,
  axis: "both" | "tokens" | "rows" = "both",
): View {
  const across = axis === "rows" ? 1 : factor;
  const down = axis === "tokens" ? 1 : factor;
  const pxPerToken = clamp(view.pxPerToken * across, MIN_PX_PER_TOKEN, MAX_PX_PER_TOKEN);
  const pxPerRow = clamp(view.pxPerRow * down, MIN_PX_PER_ROW, MAX_PX_PER_ROW);
  return {
    ...view,
    pxPerToken,
    pxPerRow,
    left: view.left + x / view.pxPerToken - x / pxPerToken,
    top: view.top + y / view.pxPerRow - y / pxPerRow,
  };
}

/** Moves the view back so that some of the forest stays in sight. */
export function clamped(view: View, layout: Pick<Layout, "width" | "height">): View {
  const across = view.width / view.pxPerToken;
  const down = view.height / view.pxPerRow;
  const [slackX, slackY] = [across * 0.8, down * 0.8];
  return {
    ...view,
    left: clamp(view.left, -slackX, Math.max(layout.width - across + slackX, -slackX)),
    top: clamp(view.top, -slackY, Math.max(layout.height - down + slackY, -slackY)),
  };
}

export function toWorld(view: View, x: number, y: number): { x: number; y: number } {
  return { x: view.left + x / view.pxPerToken, y: view.top + y / view.pxPerRow };
}

export function screenX(view: View, x: number): number {
  return (x - view.left) * view.pxPerToken;
}

/** The middle of a row. */
export function screenY(view: View, y: number): number {
  return (y + 0.5 - view.top) * view.pxPerRow;
}

export function clamp(value: number, least: number, most: number): number {
  return Math.min(Math.max(value, least), most);
}
