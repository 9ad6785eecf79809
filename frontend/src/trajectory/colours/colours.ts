// The meaning of colours: policy version, logprob or advantage. Pure. Readers with any colour vision can distinguish the
// colours of a palette apart.
//
// `versionColours` chooses the colours of versions. Logprobs follow a ramp by probability, and advantages run from
// orange over neutral to blue by sign.
import type { Theme } from "../../ui/theme/theme";
import { itemAt } from "../../values/columns";
import { clamp } from "../geometry/view";
import { contrast } from "./colourSpace";
import { colourOfVersion } from "./versionColours";

export type ColourMode = "version" | "logprob" | "advantage";
export const COLOUR_MODES: { mode: ColourMode; label: string }[] = [
  { mode: "version", label: "Policy version" },
  { mode: "logprob", label: "Log probability" },
  { mode: "advantage", label: "Advantage" },
];

export interface Palette {
  /** From improbable to certain. */
  probabilities: readonly string[];
  /** From worse to better than the group's baseline. */
  advantages: readonly string[];
  prompt: string;
  unknown: string;
  ground: string;
  line: string;
  ink: string;
  muted: string;
  accent: string;
  mark: string;
}

const DARK_INK = "#06080c";
const LIGHT_INK = "#ffffff";

const LIGHT: Palette = {
  probabilities: ["#b5432f", "#cf6a3a", "#e0914a", "#ecb765", "#eed68c", "#cfdcae", "#a5cdc0", "#7bb8cc", "#5a9fce"],
  advantages: ["#c8641b", "#dc8a45", "#ecb384", "#d9dbe0", "#9dc0e6", "#679fd8", "#3578c0"],
  prompt: "#c9cfd9",
  unknown: "#f2bccb",
  ground: "#ffffff",
  line: "#b9c1cd",
  ink: "#161b26",
  muted: "#5a6476",
  accent: "#2f5fd0",
  mark: "#10141c",
};

const DARK: Palette = {
  probabilities: ["#d0583f", "#c46a35", "#b47d34", "#a08c42", "#889459", "#6c9574", "#4f928c", "#3889a0", "#2f7cae"],
  advantages: ["#d97a2b", "#b2672c", "#7e5433", "#3c4350", "#355f8e", "#3a7cbd", "#4f9be6"],
  prompt: "#3b4453",
  unknown: "#6b3648",
  ground: "#151a22",
  line: "#4a5566",
  ink: "#e6e9ef",
  muted: "#9aa4b5",
  accent: "#7aa7ff",
  mark: "#f4f6fa",
};

export function paletteOf(theme: Theme): Palette {
  return theme === "dark" ? DARK : LIGHT;
}

export function versionColour(palette: Palette, version: number): string {
  if (version < 0) return palette.unknown;
  return colourOfVersion(version);
}

const inks = new Map<string, string>();

/** The text colour on a coloured token: dark or light, whichever has more contrast. */
export function inkUpon(colour: string): string {
  const isDark = () => contrast(DARK_INK, colour) >= contrast(LIGHT_INK, colour);
  const ink = inks.get(colour) ?? (isDark() ? DARK_INK : LIGHT_INK);
  inks.set(colour, ink);
  return ink;
}

/** The step of the ramp for a log probability. Steps are equal in probability. */
export function probabilityStep(palette: Palette, logprob: number): number {
  const steps = palette.probabilities.length;
  return clamp(Math.floor(Math.exp(logprob) * steps), 0, steps - 1);
}

export function logprobColour(palette: Palette, logprob: number): string {
  if (Number.isNaN(logprob)) return palette.prompt;
  return itemAt(palette.probabilities, probabilityStep(palette, logprob));
}

/** `largest` is the largest magnitude in the group, so that the whole ramp is used. */
export function advantageColour(palette: Palette, advantage: number | null, largest: number): string {
  if (advantage === null) return palette.prompt;
  const half = (palette.advantages.length - 1) / 2;
  const share = largest > 0 ? clamp(advantage / largest, -1, 1) : 0;
  return itemAt(palette.advantages, Math.round(half + half * share));
}
