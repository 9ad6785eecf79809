// Every token of a node with its position, version and probability. Only visible rows are rendered, and only their
// tokens are read.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { useTheme } from "../../ui/theme/theme";
import { intAt } from "../../values/columns";
import { logprobColour, paletteOf, versionColour } from "../colours/colours";
import { percentText } from "../forest/describe";
import { SAMPLED, versionAt } from "../forest/Forest";
import type { ForestSource } from "../forest/ForestSource";

const ROW_PX = 24;

export function TokenTable({ source, node }: { source: ForestSource; node: number }) {
  const { forest, tokens, vocabulary } = source;
  const palette = paletteOf(useTheme());
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: intAt(forest.numTokens, node),
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 10,
  });
  const items = virtual.getVirtualItems();
  const start = items[0]?.index ?? 0;
  const end = (items.at(-1)?.index ?? -1) + 1;
  useEffect(() => {
    if (end > start) source.tokens.requestAlso({ node, start, end });
  });
  const chunks = tokens.chunksOf(node, start, end);
  const isSampled = forest.kind[node] === SAMPLED;

  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keys
    <section className="token-table" aria-label="Tokens" tabIndex={0} ref={scroller}>
      <div className="token-head" aria-hidden="true">
        <span>Position</span>
        <span>Token</span>
        {isSampled ? <span>Version</span> : null}
        {isSampled ? <span>Probability</span> : null}
      </div>
      <ol style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const chunk = chunks.find((one) => item.index >= one.start && item.index < one.start + one.ids.length);
          const id = chunk?.ids[item.index - chunk.start];
          const logprob = chunk?.logprobs[item.index - chunk.start] ?? Number.NaN;
          const version = versionAt(forest.versionSpans(node), item.index);
          return (
            <li key={item.key} value={item.index + 1} style={{ transform: `translateY(${item.start}px)` }}>
              <span className="token-place">{item.index}</span>
              <code>{id === undefined ? "…" : vocabulary ? vocabulary.label(id) : `#${id}`}</code>
              {isSampled ? (
                <span className="token-version">
                  <i aria-hidden="true" style={{ background: versionColour(palette, version) }} />
                  {version < 0 ? "?" : version}
                </span>
              ) : null}
              {isSampled ? (
                <span className="token-probability">
                  <i aria-hidden="true" style={{ background: logprobColour(palette, logprob) }} />
                  {percentText(logprob)}
                </span>
              ) : null}
            </li>
          );
        })}
      </ol>
    </section>
  );
}
