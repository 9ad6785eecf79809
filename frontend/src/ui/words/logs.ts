// Words for the logs of phases and sessions. Pure.
import { bytes } from "./format";

/** A long log keeps its beginning and its newest lines. The lines between them are deleted. */
export function gapText(numMissing: number): string {
  return numMissing > 0 ? `\n── ${bytes(numMissing)} no longer kept ──\n` : "";
}
