// Edits the weight, the quota and the priority ceiling of a project, with a reason.
import { useState } from "react";
import { TextField } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { limits, numberWithin, spanFault } from "../../values/limits";
import { type Share, useShareEdit } from "./queries";
import { quotaOf } from "./shareWords";

export function ShareDialog({ share, onClose }: { share: Share; onClose: () => void }) {
  const [weightText, setWeight] = useState(String(share.weight));
  const [quotaText, setQuota] = useState(share.machine_quota === null ? "" : String(share.machine_quota));
  const [ceilingText, setCeiling] = useState(String(share.priority_ceiling));
  const edit = useShareEdit(share.project);
  const weight = numberWithin(weightText, limits.Weight);
  const quota = quotaOf(quotaText);
  const ceiling = numberWithin(ceilingText, limits.Priority);
  const isFit = weight !== undefined && quota !== undefined && ceiling !== undefined;
  const isChanged = weight !== share.weight || quota !== share.machine_quota || ceiling !== share.priority_ceiling;
  const send = (reason: string) =>
    isFit && edit.mutate({ weight, machine_quota: quota, priority_ceiling: ceiling, reason }, { onSuccess: onClose });
  return (
    <FormDialog
      title={`Share of ${share.project}`}
      act="Apply"
      isBlocked={!isFit || !isChanged}
      reason="required"
      sent={edit}
      onSend={send}
      onClose={onClose}
    >
      <TextField
        label="Weight"
        help="A project of weight 2 gets twice the machines of one of weight 1."
        fault={weight === undefined ? spanFault(limits.Weight) : undefined}
        isShort
        inputMode="decimal"
        value={weightText}
        onChange={setWeight}
      />
      <TextField
        label="Quota of machines"
        help="The most that its jobs may use together. Empty means no limit."
        fault={quota === undefined ? "Enter a whole number from 1 on, or nothing." : undefined}
        isShort
        inputMode="numeric"
        placeholder="none"
        value={quotaText}
        onChange={setQuota}
      />
      <TextField
        label="Priority ceiling"
        help="Up to this, the priorities of its jobs count against other projects."
        fault={ceiling === undefined ? spanFault(limits.Priority) : undefined}
        isShort
        inputMode="numeric"
        value={ceilingText}
        onChange={setCeiling}
      />
    </FormDialog>
  );
}
