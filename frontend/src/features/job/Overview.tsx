// The first look at a job: figures, the reward, where the machines' time goes, and every metric there is.
import { useMemo, useState } from "react";
import { useJob, useMetrics } from "../../api/queries";
import { ChartCard } from "../../charts/ChartCard";
import type { XKind } from "../../charts/TimeSeries";
import { decimal } from "../../ui/format";
import { Segments } from "../../ui/Segments";
import {
  chartsOf,
  evaluationChart,
  lossChart,
  metricsOf,
  otherCharts,
  overTime,
  rewardChart,
  rewardsOf,
} from "./catalogue";
import { DatasetCard } from "./Dataset";
import { hasHeldOutTasks } from "./evaluation";
import { JobMachines } from "./JobMachines";
import type { TabProps } from "./JobPage";
import { RecordedTiles } from "./RecordedTiles";
import { StagesCard } from "./StagesCard";
import { stagesOf } from "./stages";
import { Tiles } from "./Tiles";

const AXES = ["by update", "by time"] as const;
const threeDigits = (value: number | null) => decimal(value, 3);

export function Overview({ jobId, job, live }: TabProps) {
  const [xKind, setXKind] = useState<XKind>("update");
  const read = useMetrics(jobId, live.numSnapshots).data?.metrics;
  const rewards = useMemo(() => rewardsOf(live.rewards), [live.rewards]);
  const metrics = useMemo(() => metricsOf(read, live.metrics), [read, live.metrics]);
  const charts = useMemo(() => chartsOf(metrics, rewards), [metrics, rewards]);
  const others = useMemo(() => otherCharts(metrics), [metrics]);
  const reward = useMemo(() => rewardChart(rewards), [rewards]);
  const loss = useMemo(() => lossChart(metrics), [metrics]);
  const evaluation = useMemo(() => evaluationChart(metrics), [metrics]);
  const detail = useJob(jobId).data;
  const isEvaluated = hasHeldOutTasks(detail?.spec);
  const dataset = detail?.dataset ?? null;
  const stages = useMemo(() => stagesOf(detail?.spec), [detail?.spec]);
  const place = (data: (typeof charts)[number]["data"]) => (xKind === "time" ? overTime(data, rewards) : data);
  return (
    <>
      {dataset ? (
        <RecordedTiles job={job} metrics={metrics} dataset={dataset} />
      ) : (
        <Tiles job={job} live={live} rewards={rewards} />
      )}
      <div className="chart-toolbar">
        {dataset ? null : (
          <Segments
            legend="Horizontal axis"
            values={AXES}
            value={`by ${xKind}`}
            onChange={(axis) => setXKind(axis === "by time" ? "time" : "update")}
            isSmall
          />
        )}
      </div>
      <div className="charts">
        {dataset ? (
          <ChartCard title="Loss" note="by update" data={loss} xKind="update" height={260} isWide />
        ) : (
          <ChartCard
            title="Reward"
            note="by update; band ± one standard deviation over the groups"
            data={place(reward)}
            xKind={xKind}
            height={260}
            say={threeDigits}
            isWide
          />
        )}
        {dataset ? <DatasetCard dataset={dataset} /> : null}
        {stages.length > 0 ? <StagesCard job={job} stages={stages} /> : null}
        <JobMachines job={job} live={live} />
        {isEvaluated ? (
          <ChartCard
            title="Held-out tasks"
            note="by version measured"
            data={place(evaluation)}
            xKind={xKind}
            say={threeDigits}
          />
        ) : null}
        {charts
          .filter(({ title }) => !dataset || title !== "Loss")
          .map(({ title, note, data }) => (
            <ChartCard key={title} title={title} note={note} data={place(data)} xKind={xKind} />
          ))}
      </div>
      {others.length > 0 ? (
        <details className="others">
          <summary>Every other metric ({others.length})</summary>
          <div className="charts">
            {others.map(({ title, note, data }) => (
              <ChartCard key={title} title={title} note={note} data={place(data)} xKind={xKind} />
            ))}
          </div>
        </details>
      ) : null}
    </>
  );
}
