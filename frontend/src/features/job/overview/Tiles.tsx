// The figures that matter at a glance.
import type { JobRow, RewardRow } from "../../../live/rows";
import type { JobTopicState } from "../../../live/topics";
import { Tile } from "../../../ui/Tile";
import { decimal, integer, NONE } from "../../../ui/words/format";
import { engineWords } from "../phases/engines";
import { changeText, UpdatesTile } from "./UpdatesTile";

const NO_UPDATE = { over: "ended before the first update", going: "no update yet" };

export function Tiles({ job, live, rewards }: { job: JobRow; live: JobTopicState; rewards: readonly RewardRow[] }) {
  const newest = rewards.at(-1);
  const isOver = job.ended_at !== null;
  return (
    <section className="tiles" aria-label="Summary">
      <UpdatesTile job={job} />
      <Tile title="Reward" figure={decimal(newest?.mean)} testId="reward">
        {newest
          ? `${decimal(newest.low)} to ${decimal(newest.high)} (10th to 90th percentile) in update ${integer(newest.batch)}`
          : NO_UPDATE[isOver ? "over" : "going"]}
        {changeText(
          rewards.map((row) => row.mean),
          rewards[0]?.batch,
        )}
      </Tile>
      <Tile title="Policy version" figure={integer(job.latest_version)} testId="version">
        {served(live)}
        {job.best_version === null ? null : (
          <span data-testid="best-version">; best on held-out tasks: {integer(job.best_version)}</span>
        )}
      </Tile>
      <Tile title="Sampled tokens per second" figure={isOver ? NONE : integer(live.tokensPerS)}>
        {isOver ? "the job has ended" : "mean of the last 10 s"}
      </Tile>
    </section>
  );
}

function served(live: JobTopicState): string {
  const engines = [...live.phases.values()].filter((phase) => phase.role === "rollout" && phase.state === "active");
  const words = engines.map((phase) => `${phase.machine}${phase.engines.length > 1 ? ":" : ""} ${engineWords(phase)}`);
  return words.sort().join("; ") || "no active engine";
}
