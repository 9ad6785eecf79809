// The stages of a job's curriculum: the current one, the reason for it, and a manual switch.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../../../api/client";
import { queryClient, useJobEvents, useMe } from "../../../api/queries";
import type { JobRow } from "../../../live/rows";
import { Button } from "../../../ui/Button";
import { Card } from "../../../ui/Cards";
import { FormDialog } from "../../../ui/form/FormDialog";
import { currentStage, type Stage } from "./stages";

const EVERY_MS = 3000;
const EVENTS = { limit: 200, offset: 0, subject: "job" };

export function StagesCard({ job, stages }: { job: JobRow; stages: readonly Stage[] }) {
  const isOver = job.ended_at !== null;
  const events = useJobEvents(job.id, EVENTS, isOver ? false : EVERY_MS).data?.results;
  const mayWrite = useMe().data?.projects.some((one) => one.slug === job.project && one.may_write) ?? false;
  const [wanted, setWanted] = useState<string | null>(null);
  const current = events ? currentStage(stages, events) : null;
  const note = `of the task curriculum${current?.reason ? `; last switch: ${current.reason}` : ""}`;
  return (
    <Card title="Stages" note={note} className="span" testId="stages">
      <ol className="stages">
        {stages.map(({ name, until }) => (
          <li key={name} aria-current={name === current?.name ? "step" : undefined}>
            <strong>{name}</strong> <span className="muted">{until}</span>{" "}
            {name === current?.name ? <span className="badge good">{isOver ? "ended here" : "now"}</span> : null}
            {name === current?.asked ? <span className="badge info">requested</span> : null}
            {mayWrite && !isOver && name !== current?.name && name !== current?.asked ? (
              <Button look="link" onClick={() => setWanted(name)}>
                Switch to this stage…
              </Button>
            ) : null}
          </li>
        ))}
      </ol>
      {wanted ? <Switch job={job} stage={wanted} onClose={() => setWanted(null)} /> : null}
    </Card>
  );
}

function Switch({ job, stage, onClose }: { job: JobRow; stage: string; onClose: () => void }) {
  const send = useMutation({
    mutationFn: (reason: string) =>
      bodyOf(
        api.POST("/api/v1/jobs/{job_id}/stage", { params: { path: { job_id: job.id } }, body: { stage, reason } }),
      ),
    onSuccess: () => {
      void queryClient.invalidateQueries({ queryKey: ["events", job.id] });
      onClose();
    },
  });
  return (
    <FormDialog
      title={`Switch to stage ${stage}?`}
      act="Switch"
      keep="Keep the current stage"
      reason="optional"
      sent={send}
      onSend={(reason) => send.mutate(reason)}
      onClose={onClose}
    >
      <p>The next group uses this stage's tasks. Groups already under way finish unchanged.</p>
    </FormDialog>
  );
}
