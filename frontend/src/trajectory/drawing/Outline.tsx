// The forest as a tree of rows: the same nodes as the canvas, for keyboards and screen readers. Only visible rows are
// rendered.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { itemAt } from "../../values/columns";
import { nodeText } from "../forest/describe";
import { NONE } from "../forest/Forest";
import type { ForestSource } from "../forest/ForestSource";
import { layoutOf } from "../geometry/layout";
import { forksAbove, type OutlineRow, outlineOf } from "../geometry/outline";

const ROW_PX = 28;
const INDENT_PX = 18;
const MAX_INDENTS = 12;

interface Props {
  source: ForestSource;
  selected: number;
  onSelect: (node: number) => void;
}

export function Outline({ source, selected, onSelect }: Props) {
  const { forest } = source;
  const { structure } = forest;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the forest is always the same object; `structure` counts its changes of shape
  const layout = useMemo(() => layoutOf(forest), [forest, structure]);
  const [open, setOpen] = useState<ReadonlySet<number>>(() => new Set(layout.roots));
  const rows = useMemo(() => outlineOf(forest, layout, open), [forest, layout, open]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const active = rows.findIndex((row) => row.node === selected);

  useEffect(() => {
    if (selected === NONE || selected >= layout.y.length) return;
    const closed = forksAbove(forest, layout, selected).filter((fork) => !open.has(fork));
    if (closed.length) setOpen(new Set([...open, ...closed]));
  }, [forest, layout, open, selected]);
  useEffect(() => {
    if (active >= 0) virtual.scrollToIndex(active);
  }, [active, virtual]);

  const toggle = (node: number, isOpen: boolean) => {
    const next = new Set(open);
    if (isOpen) next.add(node);
    else next.delete(node);
    setOpen(next);
  };

  return (
    <div className="forest-outline" ref={scroller}>
      <div
        role="tree"
        aria-label="Nodes of the forest"
        tabIndex={0}
        aria-activedescendant={active >= 0 ? `outline-${selected}` : undefined}
        onKeyDown={(event) => keyed(event, rows, Math.max(active, 0), onSelect, toggle)}
        className="forest-outline-rows"
        style={{ height: virtual.getTotalSize() }}
      >
        {virtual.getVirtualItems().map((item) => {
          const row = itemAt(rows, item.index);
          return (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the tree handles the keys
            // biome-ignore lint/a11y/useFocusableInteractive: the tree has the focus and names the active row
            <div
              key={row.node}
              id={`outline-${row.node}`}
              role="treeitem"
              aria-level={row.level}
              aria-posinset={row.position}
              aria-setsize={row.size}
              aria-selected={row.node === selected}
              {...(row.isFork ? { "aria-expanded": row.isOpen } : {})}
              className="forest-outline-row"
              style={{
                transform: `translateY(${item.start}px)`,
                paddingLeft: 10 + INDENT_PX * Math.min(row.level - 1, MAX_INDENTS),
              }}
              onClick={() => {
                onSelect(row.node);
                if (row.isFork) toggle(row.node, !row.isOpen);
              }}
            >
              <span className="forest-outline-mark" aria-hidden="true">
                {row.isFork ? (row.isOpen ? "▾" : "▸") : "·"}
              </span>
              {nodeText(forest, row.node)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function keyed(
  event: KeyboardEvent,
  rows: readonly OutlineRow[],
  active: number,
  onSelect: (node: number) => void,
  toggle: (node: number, isOpen: boolean) => void,
): void {
  const row = rows[active];
  if (!row) return;
  const go = (position: number) => onSelect(rows[Math.min(Math.max(position, 0), rows.length - 1)]?.node ?? NONE);
  if (event.key === "ArrowDown") go(active + 1);
  else if (event.key === "ArrowUp") go(active - 1);
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(rows.length - 1);
  else if (event.key === "ArrowRight") row.isFork && !row.isOpen ? toggle(row.node, true) : go(active + 1);
  else if (event.key === "ArrowLeft") {
    if (row.isOpen) toggle(row.node, false);
    else go(rows.slice(0, active).findLastIndex((above) => above.level < row.level));
  } else return;
  event.preventDefault();
}
