// A job page: a header with the available actions, and tabs. Changes arrive over the live topic.
import { Link, NavLink, Route, Routes, useParams } from "react-router";
import { ApiProblem } from "../../api/client";
import { useJob } from "../../api/queries";
import { useServerNow, useTopic } from "../../live/LiveProvider";
import type { JobRow, PhaseRow } from "../../live/rows";
import { JOB, type JobTopicState } from "../../live/topics";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { NotFound } from "../../ui/NotFound";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { CompareTab } from "./compare/CompareTab";
import { EvaluationsTab } from "./evaluations/EvaluationsTab";
import { EventsTab } from "./events/EventsTab";
import { GroupsTab } from "./groups/GroupsTab";
import { JobHead } from "./JobHead";
import { failedPhase, whyOf } from "./jobWhy";
import { LogsTab } from "./logs/LogsTab";
import { Overview } from "./overview/Overview";
import { PhasesTab } from "./phases/PhasesTab";
import { SpecTab } from "./spec/SpecTab";
import type { TabProps } from "./tab";
import { VersionsTab } from "./versions/VersionsTab";

const TABS = [
  ["", "Overview"],
  ["groups", "Groups"],
  ["evaluations", "Evaluations"],
  ["versions", "Versions"],
  ["phases", "Phases"],
  ["logs", "Logs"],
  ["events", "Events"],
  ["spec", "Spec"],
  ["compare", "Compare"],
] as const;

export default function JobPage() {
  const { jobId = "" } = useParams();
  const detail = useJob(jobId);
  const live = useTopic(JOB.name(jobId), JOB.definition);
  if (detail.error instanceof ApiProblem && detail.error.status === 404)
    return <NotFound detail={detail.error.message} />;
  if (live?.isDeleted) return <NotFound detail="This job was deleted." />;
  if (detail.error) return <Problem error={detail.error} />;
  if (!live?.job || !detail.data) return <Loading what="Loading job" />;
  return <ShownJob jobId={jobId} job={live.job} live={live} />;
}

function ShownJob({ jobId, job, live }: TabProps) {
  useTitle(`${job.num_updates_done}/${job.num_updates} ${job.name}`);
  const now = useServerNow(1000);
  const notes = useJob(jobId).data?.model_notes ?? [];
  const tab = { jobId, job, live };
  return (
    <>
      <JobHead job={job} now={now} />
      <Waiting job={job} live={live} />
      <ModelNotes notes={notes} />
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
        <Route path="compare" element={<CompareTab {...tab} />} />
        <Route path="*" element={<NotFound />} />
      </Routes>
    </>
  );
}

/** What does not work with the model's chat template, or was not shown to work when the job was submitted. */
function ModelNotes({ notes }: { notes: readonly string[] }) {
  if (notes.length === 0) return null;
  return (
    <div className="note gap-below" data-testid="model-notes">
      <Icon name="warning" />
      <div>
        {notes.map((note) => (
          <p key={note}>{note}</p>
        ))}
      </div>
    </div>
  );
}

function Waiting({ job, live }: { job: JobRow; live: JobTopicState }) {
  const why = whyOf(job, live.events.values());
  if (!why) return null;
  return (
    <div className={why.isBad ? "problem" : "note gap-below"} data-testid="waiting">
      <Icon name="warning" />
      <div>
        <p>
          <strong>{why.title}</strong> {why.text}
        </p>
        {job.state === "queued" ? (
          <p className="what-next">
            <Link to="/queue">Who has the machines, and what would help</Link>
          </p>
        ) : null}
        {why.isBad ? <WhatNext job={job} phase={failedPhase(live.phases.values())} /> : null}
      </div>
    </div>
  );
}

/** After a failure: links to the log that explains it and to the form to try again. */
function WhatNext({ job, phase }: { job: JobRow; phase: PhaseRow | undefined }) {
  return (
    <p className="what-next">
      {phase ? (
        <Link to={`/jobs/${job.id}/logs?phase=${phase.id}`}>
          Log of the last failed phase: {phase.role} on {phase.machine}
        </Link>
      ) : null}
      <Link to={`/jobs/new?from=${job.id}`}>Edit the spec and resubmit</Link>
    </p>
  );
}
