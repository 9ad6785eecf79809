// Edits the weight and the quota of a project, with a reason.
import { useState } from "react";
import { Dialog } from "../../ui/Dialog";
import { ReasonField } from "../../ui/fields/ReasonField";
import { Problem } from "../../ui/Problem";
import { type Share, useShareEdit } from "./queries";
import { quotaOf, weightOf } from "./shareWords";

export function ShareDialog({ share, onClose }: { share: Share; onClose: () => void }) {
  const [weightText, setWeight] = useState(String(share.weight));
  const [quotaText, setQuota] = useState(share.machine_quota === null ? "" : String(share.machine_quota));
  const [reason, setReason] = useState("");
  const edit = useShareEdit(share.project);
  const weight = weightOf(weightText);
  const quota = quotaOf(quotaText);
  const isChanged = weight !== share.weight || quota !== share.machine_quota;
  return (
    <Dialog title={`Share of ${share.project}`} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (weight === undefined || quota === undefined) return;
          edit.mutate({ weight, machine_quota: quota, reason }, { onSuccess: onClose });
        }}
      >
        <label className="field">
          <span className="field-label">Weight</span>
          <input
            className="input short"
            inputMode="decimal"
            value={weightText}
            aria-invalid={weight === undefined}
            onChange={(event) => setWeight(event.target.value)}
          />
          <span className="muted">A project of weight 2 gets twice the machines of one of weight 1.</span>
        </label>
        {weight === undefined ? <p className="fault">Enter a number from 0.01 to 100.</p> : null}
        <label className="field">
          <span className="field-label">Quota of machines</span>
          <input
            className="input short"
            inputMode="numeric"
            placeholder="none"
            value={quotaText}
            aria-invalid={quota === undefined}
            onChange={(event) => setQuota(event.target.value)}
          />
          <span className="muted">The most that its jobs may hold together. Empty means no limit.</span>
        </label>
        {quota === undefined ? <p className="fault">Enter a whole number from 1 on, or nothing.</p> : null}
        <ReasonField reason={reason} onChange={setReason} isRequired />
        <Problem error={edit.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            className="button main"
            disabled={!isChanged || weight === undefined || quota === undefined || edit.isPending}
          >
            Apply
          </button>
        </div>
      </form>
    </Dialog>
  );
}
