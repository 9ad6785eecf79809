// The colour of a policy version, the same on every page and background. Pure.
//
// The versions in a group are close to one another, so neighbours must be distinct for every reader. Even versions are
// cool and odd ones warm, a pair that no kind of colour blindness confuses. Among the even ones, and among the odd
// ones, both lightness and hue change from one version to the next, and versions 10 to 19 use hues between those of 0
// to 9. Only versions twenty apart look alike. A test checks the distances, and simulates blindness for red, green and
// blue.
import { numberAt } from "../../values/columns";
import { type Rgb, rgbOf, shown } from "./colourSpace";

const LIGHTNESS = [0.52, 0.5875, 0.655, 0.7225, 0.79];
const CHROMA = 0.095;
const COOL: Hues = { from: 225, width: 85 };
const WARM: Hues = { from: 35, width: 85 };
/** Shares of the width of a range of hues. */
const FIRST_HUE = 0.3;
const HUE_STEP = 0.4;
const HUE_STEP_OF_TEN = 0.5;

interface Hues {
  /** Degrees. */
  from: number;
  width: number;
}

const known = new Map<number, string>();

/** `#rrggbb`. The version must not be negative. */
export function colourOfVersion(version: number): string {
  const colour = known.get(version) ?? shown(rgbOfVersion(version));
  known.set(version, colour);
  return colour;
}

export function rgbOfVersion(version: number): Rgb {
  const hues = version % 2 === 0 ? COOL : WARM;
  const share = (FIRST_HUE + Math.floor(version / 2) * HUE_STEP + Math.floor(version / 10) * HUE_STEP_OF_TEN) % 1;
  const lightness = numberAt(LIGHTNESS, version % LIGHTNESS.length);
  return rgbOf({ lightness, chroma: CHROMA, hue: hues.from + hues.width * share });
}
