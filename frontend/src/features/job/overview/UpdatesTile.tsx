// The job's progress in updates: the first tile of every job.
import type { JobRow } from "../../../live/rows";
import { Progress } from "../../../ui/Progress";
import { Tile } from "../../../ui/Tile";
import { decimal, integer } from "../../../ui/words/format";

export function UpdatesTile({ job }: { job: JobRow }) {
  return (
    <Tile
      title="Updates"
      figure={
        <>
          <span data-testid="updates">{integer(job.num_updates_done)}</span>{" "}
          <small>of {integer(job.num_updates)}</small>
        </>
      }
    >
      <Progress done={job.num_updates_done} all={job.num_updates} label="Updates published" />
    </Tile>
  );
}

/** ", +0.63 since the first update", or since the oldest update that is known; empty before the second. */
export function changeText(values: readonly number[], oldest = 1): string {
  const [first, last] = [values[0], values.at(-1)];
  if (first === undefined || last === undefined || values.length < 2) return "";
  const since = oldest > 1 ? `update ${integer(oldest)}` : "the first update";
  return `, ${last >= first ? "+" : ""}${decimal(last - first, 2)} since ${since}`;
}
