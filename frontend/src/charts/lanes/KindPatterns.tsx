// The patterns of all kinds of time, defined once per page. Bars and swatches refer to them by id. Their colours come
// from the page's style, so they follow a change of theme.
import { KINDS } from "./kinds";
import { fillId, INK_WIDTH, patternOf, TILE } from "./patterns";

export function KindPatterns() {
  return (
    <svg className="kind-patterns" width="0" height="0" aria-hidden="true">
      <defs>
        {KINDS.map(({ key }) => {
          const { colour, strokes } = patternOf(key);
          return (
            <pattern key={key} id={fillId(key)} width={TILE} height={TILE} patternUnits="userSpaceOnUse">
              <rect width={TILE} height={TILE} style={{ fill: `var(${colour})` }} />
              <path d={strokes} className="kind-ink" strokeWidth={INK_WIDTH} />
            </pattern>
          );
        })}
      </defs>
    </svg>
  );
}

/** A sample of a kind, for legends. */
export function Swatch({ kind }: { kind: string }) {
  return (
    <svg className="swatch kind" width="14" height="12" aria-hidden="true">
      <rect width="100%" height="100%" rx="2" fill={`url(#${fillId(kind)})`} />
    </svg>
  );
}
