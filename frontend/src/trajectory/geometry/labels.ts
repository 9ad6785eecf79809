// Decides which text of a token is drawn in its box. Pure.
import { clamp } from "./view";

/** Narrower boxes have space for no character. */
export const TEXT_FROM_PX = 11;
// Wider boxes show the beginning of a text that does not fit; narrower ones would show too little of it.
const SHORTENED_FROM_PX = 24;
const PADDING_PX = 4;
// The width of a character of the monospaced font, as fractions of its size.
const WIDTH_OF_SIZE = 0.602;

/** The size of the font for a box of this height, in pixels. */
export function labelSize(height: number): number {
  return clamp(height * 0.55, 9, 12.5);
}

/** The whole text if it fits, else its beginning; empty if neither does. */
export function labelWithin(label: string, pxPerToken: number, size: number): string {
  const mostChars = Math.floor((pxPerToken - PADDING_PX) / (size * WIDTH_OF_SIZE));
  if (label.length <= mostChars) return label;
  return pxPerToken < SHORTENED_FROM_PX ? "" : `${label.slice(0, Math.max(mostChars - 1, 1))}…`;
}
