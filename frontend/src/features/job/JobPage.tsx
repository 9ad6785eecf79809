// A job: its head with what can be done to it, and tabs. Everything that changes comes over the live topic.
import { NavLink, Route, Routes, useParams } from "react-router";
import { ApiProblem } from "../../api/client";
import { useJob } from "../../api/queries";
import { useServerNow, useTopic } from "../../live/LiveProvider";
import type { JobRow } from "../../live/rows";
import { JOB, type JobTopicState } from "../../live/topics";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { NotFound } from "../layout/NotFound";
import { EvaluationsTab } from "./EvaluationsTab";
import { EventsTab } from "./EventsTab";
import { GroupsTab } from "./GroupsTab";
import { JobHead } from "./JobHead";
import { LogsTab } from "./LogsTab";
import { Overview } from "./Overview";
import { PhasesTab } from "./PhasesTab";
import { SpecTab } from "./SpecTab";
import { VersionsTab } from "./VersionsTab";

const TABS = [
  ["", "Overview"],
  ["groups", "Groups"],
  ["evaluations", "Evaluations"],
  ["versions", "Versions"],
  ["phases", "Phases"],
  ["logs", "Logs"],
  ["events", "Events"],
  ["spec", "Spec"],
] as const;

export default function JobPage() {
  const jobId = useParams().jobId as string;
  const detail = useJob(jobId);
  const live = useTopic(JOB.name(jobId), JOB.definition);
  if (detail.error instanceof ApiProblem && detail.error.status === 404)
    return <NotFound detail={detail.error.message} />;
  if (detail.error) return <Problem error={detail.error} />;
  if (!live?.job || !detail.data) return <Loading what="Reading the job" />;
  return <ShownJob jobId={jobId} job={live.job} live={live} />;
}

export interface TabProps {
  jobId: string;
  job: JobRow;
  live: JobTopicState;
}

function ShownJob({ jobId, job, live }: TabProps) {
  useTitle(`${job.num_updates_done}/${job.num_updates} ${job.name}`);
  const now = useServerNow(1000);
  const tab = { jobId, job, live };
  return (
    <>
      <JobHead job={job} now={now} />
      <Waiting job={job} />
      <nav className="tabs" aria-label="Job">
        {TABS.map(([path, word]) => (
          <NavLink key={path} to={path ? `/jobs/${jobId}/${path}` : `/jobs/${jobId}`} end>
            {word}
          </NavLink>
        ))}
      </nav>
      <Routes>
        <Route index element={<Overview {...tab} />} />
        <Route path="groups" element={<GroupsTab {...tab} />} />
        <Route path="evaluations" element={<EvaluationsTab {...tab} />} />
        <Route path="versions" element={<VersionsTab {...tab} />} />
        <Route path="phases" element={<PhasesTab {...tab} now={now} />} />
        <Route path="logs" element={<LogsTab {...tab} />} />
        <Route path="events" element={<EventsTab {...tab} />} />
        <Route path="spec" element={<SpecTab {...tab} />} />
        <Route path="*" element={<NotFound />} />
      </Routes>
    </>
  );
}

function Waiting({ job }: { job: JobRow }) {
  const isBad = job.state === "failed" || job.state === "lost";
  if (!job.waiting_reason && !(isBad && job.state_reason)) return null;
  return (
    <div className={isBad ? "problem" : "note gap-below"} data-testid="waiting">
      <Icon name="warning" />
      <p>
        <strong>{isBad ? `Why it ${job.state === "lost" ? "was lost" : "failed"}:` : "Why it waits:"}</strong>{" "}
        {job.waiting_reason || job.state_reason}
      </p>
    </div>
  );
}
