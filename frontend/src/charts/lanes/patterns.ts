// The colour and pattern of each kind of time. Patterns ensure that no two kinds differ by colour alone. The strokes of
// a pattern lie in a square tile, which both SVG and canvases use as a fill. Pure.
import { KINDS } from "./kinds";

export const TILE = 8;
export const INK_WIDTH = 1.2;

export interface Pattern {
  /** The custom property of the page's style that names the background colour. */
  colour: string;
  /** The strokes on one tile as SVG path data; empty for a plain background. */
  strokes: string;
}

const RISING = "M-2,2 L2,-2 M0,8 L8,0 M6,10 L10,6";
const FALLING = "M-2,6 L2,10 M0,0 L8,8 M6,-2 L10,2";

const PATTERNS: Readonly<Record<string, Pattern>> = {
  "serving-full": { colour: "--serving", strokes: "M4,2 v4 M2,4 h4" },
  "serving-partly_filled": { colour: "--serving", strokes: FALLING },
  "serving-draining_tail": { colour: "--serving", strokes: "M0,2 h8 M0,6 h8" },
  serving: { colour: "--serving", strokes: "" },
  training: { colour: "--training", strokes: "M1.4,2 h1.2 M5.4,6 h1.2" },
  running_agents: { colour: "--running_agents", strokes: "M0,6.5 h8" },
  starting: { colour: "--starting", strokes: "M2,1 v2 M1,2 h2 M6,5 v2 M5,6 h2" },
  switching: { colour: "--switching", strokes: RISING },
  syncing: { colour: "--syncing", strokes: "M2,0 v8 M6,0 v8" },
  draining: { colour: "--draining", strokes: "M0,1 h8 M0,5 h8" },
  "idle-no_requests": { colour: "--idle", strokes: FALLING },
  "idle-no_batch": { colour: "--idle", strokes: RISING },
  "idle-no_groups": { colour: "--idle", strokes: `${RISING} ${FALLING}` },
  "idle-awaiting_weights": { colour: "--idle", strokes: "M4,0 v8" },
  "idle-awaiting_gang": { colour: "--idle", strokes: "M0,6 L4,2 L8,6" },
  "idle-awaiting_orders": { colour: "--idle", strokes: "M0,4 h8" },
  "idle-no_job": { colour: "--idle", strokes: "" },
  "idle-cordoned": { colour: "--idle", strokes: "M0,4 h8 M4,0 v8" },
  idle: { colour: "--idle", strokes: "M3,4 h2" },
  other_jobs: { colour: "--other_jobs", strokes: "M0,8 L4,0 L8,8" },
  unknown: { colour: "--unknown", strokes: "M2,2 h0.1 M6,6 h0.1 M6,2 h0.1 M2,6 h0.1" },
  down: { colour: "--down", strokes: "M2,2 L6,6 M6,2 L2,6" },
};

export function patternOf(key: string): Pattern {
  const pattern = PATTERNS[key];
  if (!pattern)
    throw new Error(`no pattern for the kind ${key}; the kinds are ${KINDS.map((kind) => kind.key).join(", ")}`);
  return pattern;
}

/** The id of the SVG pattern that draws a kind. */
export function fillId(key: string): string {
  return `kind-${key}`;
}
