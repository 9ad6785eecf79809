// Back and forth through pages of a list, and where one is.
import { integer } from "./format";

interface Props {
  offset: number;
  limit: number;
  count: number;
  onMove: (offset: number) => void;
  /** What lies before and behind; lists are newest first unless said otherwise. */
  words?: readonly [string, string];
}

export function Pager({ offset, limit, count, onMove, words = ["Newer", "Older"] }: Props) {
  if (count <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, count);
  return (
    <nav className="pager" aria-label="Pages">
      <button
        type="button"
        className="button"
        disabled={offset === 0}
        onClick={() => onMove(Math.max(0, offset - limit))}
      >
        {words[0]}
      </button>
      <span className="muted">
        {integer(Math.min(offset + 1, count))}–{integer(last)} of {integer(count)}
      </span>
      <button type="button" className="button" disabled={last >= count} onClick={() => onMove(offset + limit)}>
        {words[1]}
      </button>
    </nav>
  );
}
