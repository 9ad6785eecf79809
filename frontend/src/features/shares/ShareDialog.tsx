// Edits the weight, the quota and the priority ceiling of a project, with a reason.
import { useState } from "react";
import { Dialog } from "../../ui/Dialog";
import { ReasonField } from "../../ui/fields/ReasonField";
import { Problem } from "../../ui/Problem";
import { type Share, useShareEdit } from "./queries";
import { ceilingOf, quotaOf, weightOf } from "./shareWords";

export function ShareDialog({ share, onClose }: { share: Share; onClose: () => void }) {
  const [weightText, setWeight] = useState(String(share.weight));
  const [quotaText, setQuota] = useState(share.machine_quota === null ? "" : String(share.machine_quota));
  const [ceilingText, setCeiling] = useState(String(share.priority_ceiling));
  const [reason, setReason] = useState("");
  const edit = useShareEdit(share.project);
  const weight = weightOf(weightText);
  const quota = quotaOf(quotaText);
  const ceiling = ceilingOf(ceilingText);
  const isChanged = weight !== share.weight || quota !== share.machine_quota || ceiling !== share.priority_ceiling;
  return (
    <Dialog title={`Share of ${share.project}`} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (weight === undefined || quota === undefined || ceiling === undefined) return;
          edit.mutate({ weight, machine_quota: quota, priority_ceiling: ceiling, reason }, { onSuccess: onClose });
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
        <label className="field">
          <span className="field-label">Priority ceiling</span>
          <input
            className="input short"
            inputMode="numeric"
            value={ceilingText}
            aria-invalid={ceiling === undefined}
            onChange={(event) => setCeiling(event.target.value)}
          />
          <span className="muted">Up to this, the priorities of its jobs count against other projects.</span>
        </label>
        {ceiling === undefined ? <p className="fault">Enter a whole number from -100 to 100.</p> : null}
        <ReasonField reason={reason} onChange={setReason} isRequired />
        <Problem error={edit.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            className="button main"
            disabled={
              !isChanged || weight === undefined || quota === undefined || ceiling === undefined || edit.isPending
            }
          >
            Apply
          </button>
        </div>
      </form>
    </Dialog>
  );
}
