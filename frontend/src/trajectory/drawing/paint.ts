// Draws the visible section of a forest. Makes no decisions: positions come from layout and view, colours from the
// palette.
//
// From afar an answer is a strip with one colour per run. Zoomed in, each token is a cell; closer still, the cell shows
// the token's text. A notch marks where an answer changed engines, a tick where a newer version took over.
import { floatAt, intAt, numberAt } from "../../values/columns";
import {
  advantageColour,
  type ColourMode,
  inkUpon,
  logprobColour,
  type Palette,
  versionColour,
} from "../colours/colours";
import { type Forest, NONE, SAMPLED, versionAt } from "../forest/Forest";
import type { Chunk, TokenCache } from "../forest/TokenCache";
import { labelSize, labelWithin, TEXT_FROM_PX } from "../geometry/labels";
import { GAP, type Layout, widthOf } from "../geometry/layout";
import { clamp, screenX, screenY, type View } from "../geometry/view";
import type { Visible } from "../geometry/visible";
import type { Vocabulary } from "../wire/Vocabulary";

export interface Scene {
  forest: Forest;
  layout: Layout;
  view: View;
  visible: Visible;
  palette: Palette;
  mode: ColourMode;
  largestAdvantage: number;
  cache: TokenCache;
  vocabulary: Vocabulary | null;
  selected: number;
  hovered: number;
  /** The only session drawn in full colour; with NONE, all are. */
  highlighted: number;
  monospace: string;
  sans: string;
  now: number;
}

export const CELLS_FROM_PX = 5;
const TEXT_FROM_ROW_PX = 15;
const MARKS_FROM_ROW_PX = 5;
const LABELS_FROM_ROW_PX = 13;
const STRIP_SHARE = 0.66;
const MAX_STRIP_PX = 26;
const BIN_PX = 2;
const FADED = 0.22;
const PARTIAL = 0.5;
const PULSE_MS = 1200;

type Canvas = CanvasRenderingContext2D;

export function stripHeight(view: View): number {
  return clamp(view.pxPerRow * STRIP_SHARE, 1, MAX_STRIP_PX);
}

export function paint(canvas: Canvas, scene: Scene): void {
  const { view, palette } = scene;
  canvas.fillStyle = palette.ground;
  canvas.fillRect(0, 0, view.width, view.height);
  paintLines(canvas, scene);
  const height = stripHeight(view);
  for (const node of scene.visible.nodes) paintNode(canvas, scene, node, height);
  canvas.globalAlpha = 1;
  if (view.pxPerRow >= LABELS_FROM_ROW_PX) paintLabels(canvas, scene, height);
  outline(canvas, scene, scene.hovered, height, palette.muted, 1);
  outline(canvas, scene, scene.selected, height, palette.accent, 2);
}

/** Draws the lines from a node's end to the start of its children. */
function paintLines(canvas: Canvas, scene: Scene): void {
  const { layout, view, palette, forest } = scene;
  const thickness = view.pxPerRow > 8 ? 1.5 : 1;
  canvas.fillStyle = palette.line;
  for (const node of scene.visible.forks) {
    const end = screenX(view, floatAt(layout.x, node) + widthOf(forest, node));
    const turn = Math.round(end + (GAP * view.pxPerToken) / 2);
    const [first, last] = [intAt(layout.firstOf, node), intAt(layout.firstOf, node + 1)];
    const y = screenY(view, floatAt(layout.y, node));
    const highest = screenY(view, floatAt(layout.y, intAt(layout.children, first)));
    const lowest = screenY(view, floatAt(layout.y, intAt(layout.children, last - 1)));
    const [from, to] = [Math.max(Math.min(highest, y), -2), Math.min(Math.max(lowest, y), view.height + 2)];
    canvas.fillRect(end, Math.round(y - thickness / 2), turn - end, thickness);
    if (to - from >= 1) canvas.fillRect(turn, Math.round(from - thickness / 2), thickness, to - from + thickness);
    paintArms(canvas, scene, first, last, turn, thickness);
  }
}

function paintArms(canvas: Canvas, scene: Scene, first: number, last: number, turn: number, thickness: number): void {
  const { layout, view } = scene;
  let drawn = Number.NEGATIVE_INFINITY;
  for (let index = first; index < last; index++) {
    const child = intAt(layout.children, index);
    const y = Math.round(screenY(view, floatAt(layout.y, child)) - thickness / 2);
    if (y < -2 || y === drawn) continue;
    if (y > view.height + 2) break;
    drawn = y;
    canvas.fillRect(turn, y, Math.max(screenX(view, floatAt(layout.x, child)) - turn, 1), thickness);
  }
}

function paintNode(canvas: Canvas, scene: Scene, node: number, height: number): void {
  const { forest, layout, view } = scene;
  const x = screenX(view, floatAt(layout.x, node));
  const width = widthOf(forest, node) * view.pxPerToken;
  const y = screenY(view, floatAt(layout.y, node)) - height / 2;
  const isFaded =
    scene.highlighted !== NONE && forest.session[node] !== scene.highlighted && forest.parent[node] !== NONE;
  canvas.globalAlpha = isFaded ? FADED : forest.isPartial(node) ? PARTIAL : 1;
  const [top, shown] = height > 1.5 ? [Math.round(y), Math.round(height)] : [y, height];
  if (view.pxPerToken >= CELLS_FROM_PX) paintCells(canvas, scene, node, x, top, shown);
  else paintStrip(canvas, scene, node, x, top, Math.max(width, 1), shown);
  if (view.pxPerRow >= MARKS_FROM_ROW_PX) paintMarks(canvas, scene, node, x, top, shown);
  if (forest.isGrowing(node) && forest.kind[node] === SAMPLED) paintCaret(canvas, scene, x + width, top, shown);
}

/** Draws one colour per run of tokens. */
function paintStrip(
  canvas: Canvas,
  scene: Scene,
  node: number,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  const { forest, view, palette, mode } = scene;
  if (mode === "version" && forest.spans.has(node)) {
    const spans = forest.versionSpans(node);
    for (let index = 0; index < spans.length; index += 2) {
      const from = x + numberAt(spans, index) * view.pxPerToken;
      const to = index + 2 < spans.length ? x + numberAt(spans, index + 2) * view.pxPerToken : x + width;
      canvas.fillStyle = versionColour(palette, numberAt(spans, index + 1));
      canvas.fillRect(from, y, Math.max(to - from, 0.5), height);
    }
    return;
  }
  canvas.fillStyle = wholeColour(scene, node);
  canvas.fillRect(x, y, width, height);
  if (mode === "logprob" && forest.kind[node] === SAMPLED && width >= 3 * BIN_PX && height >= 2) {
    paintBins(canvas, scene, node, x, y, height);
  }
}

/** The colour of a node that is drawn as a whole. */
export function wholeColour(
  scene: Pick<Scene, "forest" | "palette" | "mode" | "largestAdvantage">,
  node: number,
): string {
  const { forest, palette, mode } = scene;
  if (forest.kind[node] !== SAMPLED) return palette.prompt;
  if (mode === "version") return versionColour(palette, intAt(forest.maxVersion, node));
  if (mode === "logprob") return logprobColour(palette, floatAt(forest.meanLogprob, node));
  return advantageColour(palette, forest.advantage(node), scene.largestAdvantage);
}

/** Draws the mean logprob of the tokens under each bin of pixels. */
function paintBins(canvas: Canvas, scene: Scene, node: number, x: number, y: number, height: number): void {
  const { view, palette } = scene;
  const [first, last] = tokensInSight(scene, node);
  const perBin = BIN_PX / view.pxPerToken;
  for (const chunk of scene.cache.chunksOf(node, first, last)) {
    const from = Math.max(first, chunk.start);
    const to = Math.min(last, chunk.start + chunk.logprobs.length);
    for (let bin = Math.floor(from / perBin); bin * perBin < to; bin++) {
      const begin = Math.max(Math.floor(bin * perBin), from);
      const end = Math.min(Math.max(Math.floor((bin + 1) * perBin), begin + 1), to);
      let sum = 0;
      for (let token = begin; token < end; token++) sum += floatAt(chunk.logprobs, token - chunk.start);
      canvas.fillStyle = logprobColour(palette, sum / (end - begin));
      canvas.fillRect(x + begin * view.pxPerToken, y, Math.max((end - begin) * view.pxPerToken, BIN_PX), height);
    }
  }
}

export function tokensInSight(
  scene: Pick<Scene, "forest" | "layout" | "view">,
  node: number,
): [from: number, to: number] {
  const { forest, layout, view } = scene;
  const offset = view.left - floatAt(layout.x, node);
  const from = clamp(Math.floor(offset), 0, intAt(forest.numTokens, node));
  const to = clamp(Math.ceil(offset + view.width / view.pxPerToken), 0, intAt(forest.numTokens, node));
  return [from, to];
}

function paintCells(canvas: Canvas, scene: Scene, node: number, x: number, y: number, height: number): void {
  const { forest, view } = scene;
  const [from, to] = tokensInSight(scene, node);
  const chunks = scene.cache.chunksOf(node, from, to);
  const colourOf = cellColour(scene, node, chunks);
  const gap = view.pxPerToken > 9 ? 1 : 0.5;
  for (let token = from; token < to; token++) {
    canvas.fillStyle = colourOf(token);
    canvas.fillRect(x + token * view.pxPerToken, y, view.pxPerToken - gap, height);
  }
  if (intAt(forest.numTokens, node) === 0) {
    canvas.fillStyle = wholeColour(scene, node);
    canvas.fillRect(x, y, 2, height);
  }
  if (view.pxPerToken >= TEXT_FROM_PX && view.pxPerRow >= TEXT_FROM_ROW_PX) {
    paintTexts(canvas, scene, node, x, y, height, chunks);
  }
}

function cellColour(scene: Scene, node: number, chunks: Chunk[]): (token: number) => string {
  const { forest, palette, mode } = scene;
  const whole = wholeColour(scene, node);
  if (forest.kind[node] !== SAMPLED || mode === "advantage") return () => whole;
  if (mode === "version") {
    const spans = forest.versionSpans(node);
    return (token) => versionColour(palette, versionAt(spans, token));
  }
  return (token) => {
    const chunk = chunks.find(({ start, ids }) => token >= start && token < start + ids.length);
    return chunk ? logprobColour(palette, floatAt(chunk.logprobs, token - chunk.start)) : whole;
  };
}

function paintTexts(
  canvas: Canvas,
  scene: Scene,
  node: number,
  x: number,
  y: number,
  height: number,
  chunks: Chunk[],
): void {
  const { vocabulary, view, palette, forest } = scene;
  const [from, to] = tokensInSight(scene, node);
  const size = labelSize(height);
  canvas.font = `${size}px ${scene.monospace}`;
  // Any letter spacing keeps the font from drawing ligatures: `<|` must stay two characters.
  canvas.letterSpacing = "0.01px";
  canvas.textBaseline = "middle";
  canvas.textAlign = "left";
  const isSampled = forest.kind[node] === SAMPLED;
  const colourOf = cellColour(scene, node, chunks);
  canvas.fillStyle = palette.ink;
  for (const chunk of chunks) {
    for (let token = Math.max(from, chunk.start); token < Math.min(to, chunk.start + chunk.ids.length); token++) {
      const id = intAt(chunk.ids, token - chunk.start);
      const label = vocabulary ? vocabulary.label(id) : String(id);
      if (isSampled) canvas.fillStyle = inkUpon(colourOf(token));
      const shown = labelWithin(label, view.pxPerToken, size);
      if (shown) canvas.fillText(shown, x + token * view.pxPerToken + 2, y + height / 2 + 0.5);
    }
  }
}

/** Draws hand-overs as notches from above, and updates as ticks through the strip. */
function paintMarks(canvas: Canvas, scene: Scene, node: number, x: number, y: number, height: number): void {
  const { forest, view, palette } = scene;
  const spans = forest.spans.get(node);
  canvas.fillStyle = palette.mark;
  for (let index = 2; spans && index < spans.length; index += 2) {
    canvas.fillRect(Math.round(x + numberAt(spans, index) * view.pxPerToken) - 1, y - 2, 1.5, height + 4);
  }
  const size = clamp(height * 0.45, 3, 6);
  for (const at of forest.handoverAt.get(node) ?? []) {
    const centre = x + at * view.pxPerToken;
    canvas.beginPath();
    canvas.moveTo(centre - size, y - size - 1);
    canvas.lineTo(centre + size, y - size - 1);
    canvas.lineTo(centre, y + size * 0.6);
    canvas.closePath();
    canvas.fillStyle = palette.accent;
    canvas.fill();
    canvas.lineWidth = 1;
    canvas.strokeStyle = palette.ground;
    canvas.stroke();
  }
}

function paintCaret(canvas: Canvas, scene: Scene, x: number, y: number, height: number): void {
  const phase = (scene.now % PULSE_MS) / PULSE_MS;
  canvas.globalAlpha *= 0.45 + 0.55 * Math.abs(1 - 2 * phase);
  canvas.fillStyle = scene.palette.accent;
  canvas.fillRect(x + 1, y - 1, Math.max(2.5, height * 0.18), height + 2);
}

/** Writes the slot and reward of its session beside the end of each branch. */
function paintLabels(canvas: Canvas, scene: Scene, height: number): void {
  const { forest, layout, view, palette } = scene;
  canvas.letterSpacing = "0px";
  canvas.font = `${clamp(height * 0.6, 9.5, 12)}px ${scene.sans}`;
  canvas.textBaseline = "middle";
  canvas.textAlign = "left";
  canvas.fillStyle = palette.muted;
  for (const node of scene.visible.nodes) {
    if (layout.firstOf[node] !== layout.firstOf[node + 1]) continue;
    const session = forest.sessions[intAt(forest.session, node)];
    if (!session) continue;
    const x = screenX(view, floatAt(layout.right, node)) + 9;
    if (x > view.width) continue;
    const worth = forest.isGrowing(node) ? "" : session.reward === null ? "" : `  ${session.reward.toFixed(2)}`;
    canvas.fillText(`${session.slot + 1}${worth}`, x, screenY(view, floatAt(layout.y, node)) + 0.5);
  }
}

function outline(canvas: Canvas, scene: Scene, node: number, height: number, colour: string, thickness: number): void {
  const { forest, layout, view } = scene;
  if (node === NONE || node >= layout.y.length || forest.isGone(node)) return;
  const x = Math.max(screenX(view, floatAt(layout.x, node)), -10);
  const end = Math.min(screenX(view, floatAt(layout.x, node) + widthOf(forest, node)), view.width + 10);
  const y = screenY(view, floatAt(layout.y, node)) - height / 2;
  canvas.strokeStyle = colour;
  canvas.lineWidth = thickness;
  canvas.strokeRect(x - 2, y - 2, Math.max(end - x, 1) + 4, height + 4);
}
