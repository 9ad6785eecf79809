// The figures that matter at a glance.
import type { JobRow, RewardRow } from "../../live/rows";
import type { JobTopicState } from "../../live/topics";
import { decimal, integer, NONE } from "../../ui/format";
import { Progress } from "../../ui/Progress";

export function Tiles({ job, live, rewards }: { job: JobRow; live: JobTopicState; rewards: readonly RewardRow[] }) {
  const newest = rewards.at(-1);
  const first = rewards[0];
  const change = newest && first && newest !== first ? newest.mean - first.mean : null;
  return (
    <section className="tiles" aria-label="Figures">
      <div className="card tile">
        <h2>Updates</h2>
        <p className="tile-figure">
          <span data-testid="updates">{integer(job.num_updates_done)}</span>{" "}
          <small>of {integer(job.num_updates)}</small>
        </p>
        <Progress done={job.num_updates_done} all={job.num_updates} label="Updates published" />
      </div>
      <div className="card tile">
        <h2>Reward</h2>
        <p className="tile-figure" data-testid="reward">
          {decimal(newest?.mean)}
        </p>
        <p className="muted">
          {newest ? `± ${decimal(newest.spread)} in update ${integer(newest.batch)}` : "no update yet"}
          {change === null ? "" : `, ${change >= 0 ? "+" : ""}${decimal(change, 2)} since the first`}
        </p>
      </div>
      <div className="card tile">
        <h2>Policy version</h2>
        <p className="tile-figure" data-testid="version">
          {integer(job.latest_version)}
        </p>
        <p className="muted">{served(live)}</p>
      </div>
      <div className="card tile">
        <h2>Sampled tokens/s</h2>
        <p className="tile-figure">{job.ended_at === null ? integer(live.tokensPerS) : NONE}</p>
        <p className="muted">{job.ended_at === null ? "mean of the last 10 s" : "the job has ended"}</p>
      </div>
    </section>
  );
}

function served(live: JobTopicState): string {
  const engines = [...live.phases.values()].filter((phase) => phase.role === "rollout" && phase.state === "active");
  const words = engines.map((phase) => `${phase.machine} serves ${integer(phase.served_version)}`);
  return words.sort().join(", ") || "no engine is active";
}
