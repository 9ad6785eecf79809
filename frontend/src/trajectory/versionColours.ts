// The colour of a policy version, the same on every page and ground. Pure.
//
// Versions that meet in a group are near one another, so near ones must differ for every reader. Even versions are cool,
// odd ones warm: the pair that no colour vision confuses. Within a kind both lightness and hue go on from one version to
// the next; the second ten have the hues between those of the first. Only versions twenty apart look alike. Distances are
// held by a test, with blindness for red, green and blue simulated.
import { type Rgb, rgbOf, shown } from "./colourSpace";

const LIGHTNESS = [0.52, 0.5875, 0.655, 0.7225, 0.79];
const CHROMA = 0.095;
const COOL: Hues = { from: 225, width: 85 };
const WARM: Hues = { from: 35, width: 85 };
/** Shares of a kind's width. */
const FIRST_HUE = 0.3;
const HUE_STEP = 0.4;
const HUE_STEP_OF_TEN = 0.5;

interface Hues {
  /** Degrees. */
  from: number;
  width: number;
}

const known = new Map<number, string>();

/** `#rrggbb` of a version, which is not negative. */
export function colourOfVersion(version: number): string {
  const colour = known.get(version) ?? shown(rgbOfVersion(version));
  known.set(version, colour);
  return colour;
}

export function rgbOfVersion(version: number): Rgb {
  const hues = version % 2 === 0 ? COOL : WARM;
  const share = (FIRST_HUE + Math.floor(version / 2) * HUE_STEP + Math.floor(version / 10) * HUE_STEP_OF_TEN) % 1;
  const lightness = LIGHTNESS[version % LIGHTNESS.length] as number;
  return rgbOf({ lightness, chroma: CHROMA, hue: hues.from + hues.width * share });
}
