// Gives a job another priority. The edit names the generation that the user saw, and is refused (412) if another person asked
// something else of the job in the meantime.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../api/client";
import { queryClient } from "../api/queries";
import { TextField } from "../ui/form/Field";
import { FormDialog } from "../ui/form/FormDialog";
import { limits, numberWithin, spanFault } from "../values/limits";

const { Priority } = limits;

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
  const value = numberWithin(text, Priority);
  const edit = useMutation({
    mutationFn: ({ value, reason }: { value: number; reason: string }) =>
      bodyOf(
        api.PATCH("/api/v1/jobs/{job_id}", {
          params: { path: { job_id: jobId }, header: { "If-Match": `"${generation}"` } },
          body: { priority: value, reason },
        }),
      ),
    onSuccess: (job) => {
      queryClient.setQueryData(["job", jobId], job);
      onClose();
    },
  });
  return (
    <FormDialog
      title={`Priority of ${jobName}`}
      act="Set the priority"
      keep="Leave it"
      isBlocked={value === undefined || value === priority}
      reason="optional"
      sent={edit}
      onSend={(reason) => value !== undefined && edit.mutate({ value, reason })}
      onClose={onClose}
    >
      <p className="muted">
        Among the jobs of a project, those of a higher priority get machines first, and those of a lower one stop for
        them. Against other projects, a priority counts up to the ceiling that operators set for the project.
      </p>
      <TextField
        label={`Priority (${Priority.minimum} to ${Priority.maximum})`}
        fault={value === undefined ? spanFault(Priority) : undefined}
        isShort
        inputMode="numeric"
        value={text}
        onChange={setText}
      />
    </FormDialog>
  );
}
