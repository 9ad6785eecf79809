// Name, state and times of a job, with pause, resume, cancel and its priority, each in a dialog.
import { useState } from "react";
import { Link } from "react-router";
import { type JobVerb, useJob, useJobEdit, useMe } from "../../api/queries";
import { ranMs } from "../../live/ran";
import type { JobRow } from "../../live/rows";
import { PriorityDialog } from "../../pickers/PriorityDialog";
import { Button } from "../../ui/Button";
import { CopyButton } from "../../ui/CopyButton";
import { FormDialog } from "../../ui/form/FormDialog";
import { Icon } from "../../ui/Icon";
import { StateBadge } from "../../ui/StateBadge";
import { duration, moment } from "../../ui/words/format";
import { shownState } from "../../ui/words/jobStates";

const ENDED = new Set(["completed", "cancelled"]);

const QUESTIONS: Record<JobVerb, { title: string; wording: string; act: string; keep: string }> = {
  pause: {
    title: "Pause this job?",
    wording:
      "Its machines drain and become available to other jobs. Sessions, batches and weights are kept. When you resume the job, it continues from there on whatever machines are free.",
    act: "Pause the job",
    keep: "Let it run",
  },
  resume: {
    title: "Resume this job?",
    wording: "The job queues for machines again and continues from its newest checkpoint.",
    act: "Resume the job",
    keep: "Leave it paused",
  },
  cancel: {
    title: "Cancel this job?",
    wording:
      "The job releases its machines and cannot be restarted. Published versions and recorded sessions are kept.",
    act: "Cancel the job",
    keep: "Keep it",
  },
};

export function JobHead({ job, now }: { job: JobRow; now: number }) {
  const mayWrite = useMe().data?.projects.some((one) => one.slug === job.project && one.may_write) ?? false;
  return (
    <div className="page-head">
      <div className="job-head">
        <p className="crumbs">
          <Link to="/">Jobs</Link> <Icon name="chevron" /> <span className="muted">{job.project}</span>
        </p>
        <h1>{job.name}</h1>
        <p className="facts">
          <StateBadge state={shownState(job.state, job.paused_by)} testId="job-state" />
          <span className="mono">{job.id}</span>
          <CopyButton text={job.id} label="Copy the job ID" />
          {job.owner ? <span>by {job.owner}</span> : null}
          <span>submitted {moment(job.created_at)}</span>
          <span>{ranFor(job, now)}</span>
        </p>
      </div>
      {mayWrite ? <Actions job={job} /> : null}
    </div>
  );
}

function ranFor(job: JobRow, now: number): string {
  const ran = ranMs(job, now);
  if (job.started_at === null || ran === null) return "";
  if (job.ended_at !== null || job.paused_at !== null) return `ran for ${duration(ran)}`;
  return job.state === "running" ? `running for ${duration(ran)}` : `started ${moment(job.started_at)}`;
}

function Actions({ job }: { job: JobRow }) {
  const [verb, setVerb] = useState<JobVerb | null>(null);
  const isOver = ENDED.has(job.state) || job.desired === "cancel";
  const read = useJob(job.id);
  const detail = read.data;
  const [isPriority, setPriority] = useState(false);
  // The dialog shows the job's state, so the job is read anew before it opens.
  const openPriority = () => void read.refetch().then(() => setPriority(true));
  return (
    <div className="button-row">
      {isOver ? null : job.desired === "pause" ? (
        <Button icon="play" onClick={() => setVerb("resume")}>
          Resume
        </Button>
      ) : (
        <Button icon="pause" onClick={() => setVerb("pause")}>
          Pause
        </Button>
      )}
      {isOver ? null : (
        <Button icon="stop" look="danger" onClick={() => setVerb("cancel")}>
          Cancel
        </Button>
      )}
      {isOver || !detail ? null : (
        <Button icon="queue" onClick={openPriority}>
          Priority {detail.priority}
        </Button>
      )}
      <Link className="button" to={`/jobs/new?from=${job.id}`}>
        <Icon name="copy" /> Clone
      </Link>
      {detail && !detail.dataset && job.num_updates_done > 0 ? (
        <Link className="button" to={`/jobs/new?imitate=${job.id}`}>
          <Icon name="tree" /> Train on its sessions
        </Link>
      ) : null}
      {isPriority && detail ? (
        <PriorityDialog
          jobId={job.id}
          jobName={job.name}
          generation={detail.generation}
          priority={detail.priority}
          onClose={() => setPriority(false)}
        />
      ) : null}
      {verb ? <Sure key={verb} jobId={job.id} verb={verb} onClose={() => setVerb(null)} /> : null}
    </div>
  );
}

function Sure({ jobId, verb, onClose }: { jobId: string; verb: JobVerb; onClose: () => void }) {
  const edit = useJobEdit(jobId);
  const { title, wording, act, keep } = QUESTIONS[verb];
  return (
    <FormDialog
      title={title}
      act={act}
      keep={keep}
      isDanger={verb === "cancel"}
      reason="optional"
      sent={edit}
      onSend={(reason) => edit.mutate({ verb, reason }, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>{wording}</p>
    </FormDialog>
  );
}
