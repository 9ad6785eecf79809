// Deletes a job or parts of it. The dialog shows beforehand what each part frees, or why it cannot be deleted.
import { useState } from "react";
import { Button } from "../../ui/Button";
import { Check } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { bytes, plural } from "../../ui/words/format";
import { allOf, bytesOf, chosenOf, MAX_PARTS, partKey, partWords, toggled } from "./parts";
import { type Part, type StoredJob, useDelete, useJobParts } from "./queries";

interface Props {
  job: StoredJob;
  project: string;
  onClose: () => void;
}

export function JobPartsDialog({ job, project, onClose }: Props) {
  const read = useJobParts(job.id);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const remove = useDelete(project);
  const parts = read.data?.items ?? [];
  const going = chosenOf(parts, chosen);
  const isTooMany = going.length > MAX_PARTS;
  return (
    <FormDialog
      title={`Delete ${job.name} or parts of it`}
      act="Delete permanently"
      isDanger
      isWide
      isBlocked={going.length === 0 || isTooMany}
      reason="optional"
      sent={remove}
      onSend={(reason) => remove.mutate({ parts: going, reason }, { onSuccess: onClose })}
      onClose={onClose}
    >
      <Problem error={read.error} />
      {read.isPending ? <Loading what="Loading parts" /> : null}
      <Shortcuts parts={parts} onChoose={setChosen} />
      <PartList parts={parts} chosen={chosen} onToggle={(part) => setChosen(toggled(chosen, part))} />
      <p className="muted" data-testid="freed">
        {going.length === 0
          ? "Nothing selected yet."
          : `${plural(going.length, "part")}, ${bytes(bytesOf(going))}. The job's metrics and events are kept unless you delete the whole job.`}
      </p>
      {isTooMany ? <p className="fault">At most {MAX_PARTS} parts can be deleted at once.</p> : null}
    </FormDialog>
  );
}

function Shortcuts({ parts, onChoose }: { parts: readonly Part[]; onChoose: (keys: ReadonlySet<string>) => void }) {
  const shortcuts = [
    ["All checkpoints", allOf(parts, "checkpoint", 0)],
    ["All versions except the latest", allOf(parts, "version", 1)],
  ] as const;
  const useful = shortcuts.filter(([, keys]) => keys.size > 1);
  if (useful.length === 0) return null;
  return (
    <div className="role-checks">
      {useful.map(([words, keys]) => (
        <Button key={words} look="link" onClick={() => onChoose(keys)}>
          {words} ({keys.size})
        </Button>
      ))}
    </div>
  );
}

interface ListProps {
  parts: readonly Part[];
  chosen: ReadonlySet<string>;
  onToggle: (part: Part) => void;
}

function PartList({ parts, chosen, onToggle }: ListProps) {
  return (
    <ul className="part-list" aria-label="Parts of the job">
      {parts.map((part) => (
        <li key={partKey(part)}>
          <Check
            isDisabled={part.refusal !== ""}
            isChecked={part.refusal === "" && chosen.has(partKey(part))}
            onChange={() => onToggle(part)}
          >
            {partWords(part)}
            {part.refusal ? <span className="why">Cannot be deleted: {part.refusal}.</span> : null}
          </Check>
          <span className="muted nowrap">{bytes(part.num_bytes)}</span>
        </li>
      ))}
    </ul>
  );
}
