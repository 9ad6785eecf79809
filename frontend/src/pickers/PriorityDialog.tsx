// Gives a job another priority. The edit names the generation that the user saw, and is refused (412) if somebody asked
// something else of the job in the meantime.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../api/client";
import { queryClient } from "../api/queries";
import { Dialog } from "../ui/Dialog";
import { ReasonField } from "../ui/fields/ReasonField";
import { Problem } from "../ui/Problem";

const LEAST = -100;
const MOST = 100;

interface Props {
  jobId: string;
  jobName: string;
  generation: number;
  priority: number;
  proposed?: number;
  onClose: () => void;
}

export function PriorityDialog({ jobId, jobName, generation, priority, proposed = priority, onClose }: Props) {
  const [text, setText] = useState(String(proposed));
  const [reason, setReason] = useState("");
  const value = Number(text);
  const isFit = text.trim() !== "" && Number.isInteger(value) && value >= LEAST && value <= MOST;
  const edit = useMutation({
    mutationFn: () =>
      bodyOf(
        api.PATCH("/api/v1/jobs/{job_id}", {
          params: { path: { job_id: jobId }, header: { "If-Match": `"${generation}"` } },
          body: { priority: value, reason: reason.trim() },
        }),
      ),
    onSuccess: (job) => {
      queryClient.setQueryData(["job", jobId], job);
      onClose();
    },
  });
  return (
    <Dialog title={`Priority of ${jobName}`} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (isFit) edit.mutate();
        }}
      >
        <p className="muted">
          Among the jobs of a project, those of a higher priority get machines first, and those of a lower one stop for
          them. Against other projects, a priority counts up to the ceiling that operators set for the project.
        </p>
        <label className="field">
          <span className="field-label">Priority ({`${LEAST} to ${MOST}`})</span>
          <input
            className="input short"
            inputMode="numeric"
            value={text}
            aria-invalid={!isFit}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        {isFit ? null : <p className="fault">Enter a whole number from −100 to 100.</p>}
        <ReasonField reason={reason} onChange={setReason} />
        <Problem error={edit.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Leave it
          </button>
          <button type="submit" className="button main" disabled={!isFit || value === priority || edit.isPending}>
            Set the priority
          </button>
        </div>
      </form>
    </Dialog>
  );
}
