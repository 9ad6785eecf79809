// Moves back and forth through the pages of a list, and shows the current position.
import { Button } from "../Button";
import { integer } from "../words/format";

interface Props {
  offset: number;
  limit: number;
  count: number;
  onMove: (offset: number) => void;
  /** Labels for the previous and next page. Lists are newest first by default. */
  words?: readonly [string, string];
}

export function Pager({ offset, limit, count, onMove, words = ["Newer", "Older"] }: Props) {
  if (count <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, count);
  return (
    <nav className="pager" aria-label="Pages">
      <Button disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - limit))}>
        {words[0]}
      </Button>
      <span className="muted">
        {integer(Math.min(offset + 1, count))}–{integer(last)} of {integer(count)}
      </span>
      <Button disabled={last >= count} onClick={() => onMove(offset + limit)}>
        {words[1]}
      </Button>
    </nav>
  );
}
