// Explains the colours and marks of the canvas.

import { useTheme } from "../../ui/theme/theme";
import { intAt, numberAt } from "../../values/columns";
import { type ColourMode, type Palette, paletteOf, versionColour } from "../colours/colours";
import { type Forest, SAMPLED } from "../forest/Forest";

const MAX_VERSIONS = 14;

interface Props {
  forest: Forest;
  mode: ColourMode;
  largestAdvantage: number;
}

export function Legend({ forest, mode, largestAdvantage }: Props) {
  const palette = paletteOf(useTheme());
  return (
    <div className="forest-legend">
      {mode === "version" ? <Versions forest={forest} palette={palette} /> : null}
      {mode === "logprob" ? <Ramp colours={palette.probabilities} from="improbable" to="certain" /> : null}
      {mode === "advantage" ? (
        <Ramp
          colours={palette.advantages}
          from={`worse (−${largestAdvantage.toFixed(2)})`}
          to={`better (+${largestAdvantage.toFixed(2)})`}
        />
      ) : null}
      <span className="legend-entry">
        <i style={{ background: palette.prompt }} /> prompt
      </span>
      <span className="legend-entry">
        <svg className="legend-mark" viewBox="0 0 12 10" aria-hidden="true">
          <path d="M1 1h10L6 9z" fill={palette.accent} />
        </svg>
        hand-over
      </span>
      <span className="legend-entry">
        <svg className="legend-mark" viewBox="0 0 12 10" aria-hidden="true">
          <path d="M5 0h2v10H5z" fill={palette.mark} />
        </svg>
        version change
      </span>
    </div>
  );
}

function Versions({ forest, palette }: { forest: Forest; palette: Palette }) {
  const versions = versionsOf(forest);
  const shown = versions.slice(-MAX_VERSIONS);
  return (
    <>
      <span className="legend-title">Version</span>
      {versions.length > shown.length ? <span>… {versions.length - shown.length} older</span> : null}
      {shown.map((version) => (
        <span className="legend-entry" key={version}>
          <i style={{ background: versionColour(palette, version) }} /> {version < 0 ? "unknown" : version}
        </span>
      ))}
    </>
  );
}

/** The versions that sampled any node, in ascending order. */
export function versionsOf(forest: Forest): number[] {
  const found = new Set<number>();
  for (let node = 0; node < forest.numNodes; node++) {
    if (forest.kind[node] !== SAMPLED || forest.isGone(node)) continue;
    found.add(intAt(forest.minVersion, node));
    found.add(intAt(forest.maxVersion, node));
  }
  for (const spans of forest.spans.values())
    for (let run = 1; run < spans.length; run += 2) found.add(numberAt(spans, run));
  return [...found].sort((a, b) => a - b);
}

function Ramp({ colours, from, to }: { colours: readonly string[]; from: string; to: string }) {
  return (
    <span className="legend-ramp">
      {from}
      <span aria-hidden="true">
        {colours.map((colour) => (
          <i key={colour} style={{ background: colour }} />
        ))}
      </span>
      {to}
    </span>
  );
}
