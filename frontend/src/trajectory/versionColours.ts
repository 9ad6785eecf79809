// The colour of a policy version, the same on every page and ground. Pure.
//
// Versions that meet in a group are near one another, so near ones must differ for every reader. Even versions are cool,
// odd ones warm: the pair that no colour vision confuses. Among five neighbours of either kind lightness differs, by one
// step at least; after ten versions the hue moves within its kind by the golden ratio, so no colour comes back exactly.
// Distances are held by a test, with red, green and blue blindness simulated.
import { type Rgb, rgbOf, shown } from "./colourSpace";

const LIGHTNESS = [0.52, 0.5875, 0.655, 0.7225, 0.79];
const CHROMA = 0.095;
const COOL: Hues = { from: 225, width: 90 };
const WARM: Hues = { from: 40, width: 70 };
const GOLDEN = (Math.sqrt(5) - 1) / 2;

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
  const share = (Math.floor(version / (2 * LIGHTNESS.length)) * GOLDEN + 0.5) % 1;
  const lightness = LIGHTNESS[version % LIGHTNESS.length] as number;
  return rgbOf({ lightness, chroma: CHROMA, hue: hues.from + hues.width * share });
}
