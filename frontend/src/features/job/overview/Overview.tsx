// Overview of a job: summary, reward, where the machines' time goes, and every metric.
import { useMemo } from "react";
import { useJob } from "../../../api/queries";
import type { XKind } from "../../../charts/lines/axis";
import { ChartCard } from "../../../charts/lines/ChartCard";
import { useChartView } from "../../../charts/lines/zoom";
import { Button } from "../../../ui/Button";
import { Cards } from "../../../ui/Cards";
import { Segments } from "../../../ui/fields/Segments";
import { oneOf, useViewState } from "../../../ui/useViewState";
import { decimal } from "../../../ui/words/format";
import { DatasetCard } from "../dataset/Dataset";
import { hasHeldOutTasks } from "../evaluations/evaluation";
import { FailuresCard } from "../failures/FailuresCard";
import { failuresOf } from "../failures/failures";
import {
  chartsOf,
  evaluationChart,
  lossChart,
  otherCharts,
  overTime,
  rewardChart,
  rewardsOf,
  stepsShown,
} from "../metrics/catalogue";
import { OtherCharts } from "../metrics/OtherCharts";
import { useJobMetrics } from "../metrics/useJobMetrics";
import { StagesCard } from "../stages/StagesCard";
import { stagesOf } from "../stages/stages";
import type { TabProps } from "../tab";
import { JobMachines } from "./JobMachines";
import { OfflineTiles } from "./OfflineTiles";
import { Tiles } from "./Tiles";

const AXES = ["by update", "by time"] as const;
const X_KIND = oneOf<XKind>(["update", "time"]);
/** The metrics whose charts span the page. */
const WIDE = "reward/mean,train/loss";
const threeDigits = (value: number | null) => decimal(value, 3);

export function Overview({ jobId, job, live }: TabProps) {
  const [xKind, setXKind] = useViewState("axis", X_KIND);
  const view = useChartView(xKind);
  const rewards = useMemo(() => rewardsOf(live.rewards), [live.rewards]);
  const range = useMemo(() => stepsShown(view.range, xKind, rewards), [view.range, xKind, rewards]);
  const { metrics, width } = useJobMetrics(jobId, live, { range });
  const wide = useJobMetrics(jobId, live, { names: WIDE, buckets: document.documentElement.clientWidth, range });
  const charts = useMemo(() => chartsOf(metrics, rewards, width), [metrics, rewards, width]);
  const others = useMemo(() => otherCharts(metrics, width), [metrics, width]);
  const reward = useMemo(() => rewardChart(rewards, wide.metrics, wide.width), [rewards, wide]);
  const loss = useMemo(() => lossChart(wide.metrics, wide.width), [wide]);
  const evaluation = useMemo(() => evaluationChart(metrics, width), [metrics, width]);
  const failures = useMemo(() => failuresOf(metrics), [metrics]);
  const detail = useJob(jobId).data;
  const isEvaluated = hasHeldOutTasks(detail?.spec);
  const dataset = detail?.dataset ?? null;
  const stages = useMemo(() => stagesOf(detail?.spec), [detail?.spec]);
  const onAxis = (data: (typeof charts)[number]["data"]) => (xKind === "time" ? overTime(data, rewards) : data);
  return (
    <>
      {dataset ? (
        <OfflineTiles job={job} metrics={metrics} dataset={dataset} />
      ) : (
        <Tiles job={job} live={live} rewards={rewards} />
      )}
      <div className="chart-toolbar">
        {view.range ? (
          <Button onClick={() => view.onRange(null)}>Reset zoom</Button>
        ) : (
          <span className="muted self-center">Drag across a chart to zoom in.</span>
        )}
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
      <Cards className="charts">
        {dataset ? (
          <ChartCard title="Loss" note="by update" data={loss} xKind="update" height={260} isWide view={view} />
        ) : (
          <ChartCard
            title="Reward"
            note="by update; the band spans the 10th to 90th percentile of groups"
            data={onAxis(reward)}
            xKind={xKind}
            height={260}
            say={threeDigits}
            isWide
            view={view}
          />
        )}
        {dataset ? <DatasetCard dataset={dataset} /> : null}
        {stages.length > 0 ? <StagesCard job={job} stages={stages} /> : null}
        <JobMachines job={job} live={live} />
        {failures ? <FailuresCard failures={failures} live={live} /> : null}
        {isEvaluated ? (
          <ChartCard
            title="Held-out tasks"
            note="by evaluated version"
            data={onAxis(evaluation)}
            xKind={xKind}
            say={threeDigits}
            view={view}
          />
        ) : null}
        {charts
          .filter(({ title }) => !dataset || title !== "Loss")
          .map(({ title, note, data }) => (
            <ChartCard key={title} title={title} note={note} data={onAxis(data)} xKind={xKind} view={view} />
          ))}
      </Cards>
      <OtherCharts title="All other metrics" charts={others} onAxis={onAxis} xKind={xKind} view={view} />
    </>
  );
}
