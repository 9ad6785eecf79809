// The key figures of a job that trains on an offline dataset.
import type { JobRow } from "../../../live/rows";
import { Tile } from "../../../ui/Tile";
import { decimal, integer, NONE } from "../../../ui/words/format";
import type { DatasetShown } from "../dataset/Dataset";
import { type Metrics, sumOf } from "../metrics/catalogue";
import { changeText, UpdatesTile } from "./UpdatesTile";

export function OfflineTiles({ job, metrics, dataset }: { job: JobRow; metrics: Metrics; dataset: DatasetShown }) {
  const loss = metrics.get("train/loss");
  const losses = loss?.value ?? [];
  const newest = losses.at(-1);
  const epoch = metrics.get("train/epoch")?.value.at(-1);
  return (
    <section className="tiles" aria-label="Summary">
      <UpdatesTile job={job} />
      <Tile title="Loss" figure={decimal(newest, 4)} testId="loss">
        {newest === undefined ? "no update yet" : "nats per trained token"}
        {changeText(losses, loss?.step[0])}
      </Tile>
      <Tile
        title="Epoch"
        figure={
          <>
            {epoch === undefined ? NONE : decimal(epoch, 2)} <small>of {integer(dataset.num_epochs)}</small>
          </>
        }
        testId="epoch"
      >
        {integer(sumOf(metrics.get("train/num_trained_tokens")))} tokens trained
      </Tile>
      <Tile title="Policy version" figure={integer(job.latest_version)} testId="version">
        not served by any engine; export it or start a job from it
      </Tile>
    </section>
  );
}
