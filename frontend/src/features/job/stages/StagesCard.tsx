// The stages of a job's curriculum: the current one, the reason for it, and a manual switch.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../../../api/client";
import { queryClient, useJobEvents, useMe } from "../../../api/queries";
import type { JobRow } from "../../../live/rows";
import { Dialog } from "../../../ui/Dialog";
import { ReasonField } from "../../../ui/fields/ReasonField";
import { Problem } from "../../../ui/Problem";
import { currentStage, type Stage } from "./stages";

const EVERY_MS = 3000;
const EVENTS = { limit: 200, offset: 0, subject: "job" };

export function StagesCard({ job, stages }: { job: JobRow; stages: readonly Stage[] }) {
  const isOver = job.ended_at !== null;
  const events = useJobEvents(job.id, EVENTS, isOver ? false : EVERY_MS).data?.results;
  const mayWrite = useMe().data?.projects.some((one) => one.slug === job.project && one.may_write) ?? false;
  const [wanted, setWanted] = useState<string | null>(null);
  const current = events ? currentStage(stages, events) : null;
  return (
    <section className="card span" data-testid="stages">
      <div className="card-head">
        <h2>Stages</h2>
        <span className="muted">of the task curriculum{current?.reason ? `; last switch: ${current.reason}` : ""}</span>
      </div>
      <ol className="stages">
        {stages.map(({ name, until }) => (
          <li key={name} aria-current={name === current?.name ? "step" : undefined}>
            <strong>{name}</strong> <span className="muted">{until}</span>{" "}
            {name === current?.name ? <span className="badge good">{isOver ? "ended here" : "now"}</span> : null}
            {name === current?.asked ? <span className="badge info">requested</span> : null}
            {mayWrite && !isOver && name !== current?.name && name !== current?.asked ? (
              <button type="button" className="link-button" onClick={() => setWanted(name)}>
                Switch to this stage…
              </button>
            ) : null}
          </li>
        ))}
      </ol>
      {wanted ? <Switch job={job} stage={wanted} onClose={() => setWanted(null)} /> : null}
    </section>
  );
}

function Switch({ job, stage, onClose }: { job: JobRow; stage: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const send = useMutation({
    mutationFn: () =>
      bodyOf(
        api.POST("/api/v1/jobs/{job_id}/stage", {
          params: { path: { job_id: job.id } },
          body: { stage, reason: reason.trim() },
        }),
      ),
    onSuccess: () => {
      void queryClient.invalidateQueries({ queryKey: ["events", job.id] });
      onClose();
    },
  });
  return (
    <Dialog title={`Switch to stage ${stage}?`} onClose={onClose}>
      <p>The next group uses this stage's tasks. Groups already under way finish unchanged.</p>
      <ReasonField reason={reason} onChange={setReason} />
      <Problem error={send.error} />
      <div className="button-row">
        <button type="button" className="button" onClick={onClose}>
          Keep the current stage
        </button>
        <button type="button" className="button main" disabled={send.isPending} onClick={() => send.mutate()}>
          Switch
        </button>
      </div>
    </Dialog>
  );
}
