// Edits a policy: each setting is inherited or has its own value. Errors are shown beside their fields.
import { useState } from "react";
import { ApiProblem } from "../../api/client";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Problem";
import { changesOf, type Draft, draftFault, draftOf, isEmpty, isSwitch, valueWords } from "./policy";
import { type PolicyOf, type Setting, usePolicyEdit } from "./queries";

interface Props {
  of: PolicyOf;
  settings: readonly Setting[];
  onClose: () => void;
}

export function PolicyDialog({ of, settings, onClose }: Props) {
  const [drafts, setDrafts] = useState(() => Object.fromEntries(settings.map((one) => [one.name, draftOf(one)])));
  const edit = usePolicyEdit(of);
  const changes = changesOf(settings, drafts);
  const draftFor = (setting: Setting) => drafts[setting.name] ?? draftOf(setting);
  const hasFault = settings.some((setting) => draftFault(setting, draftFor(setting)) !== undefined);
  const refused = edit.error instanceof ApiProblem ? edit.error.faults : [];
  return (
    <Dialog title={of === null ? "Installation defaults" : `Retention policy of ${of}`} onClose={onClose} isWide>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          edit.mutate(changes, { onSuccess: onClose });
        }}
      >
        <div className="policy-fields">
          {settings.map((setting) => (
            <SettingField
              key={setting.name}
              setting={setting}
              draft={draftFor(setting)}
              refusal={refused.find(({ field }) => field === setting.name)?.detail}
              onChange={(draft) => setDrafts({ ...drafts, [setting.name]: draft })}
            />
          ))}
        </div>
        <Problem error={edit.error} />
        <p className="muted">
          The policy runs every hour. Once you save, this page shows what the new values will delete.
        </p>
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button main" disabled={hasFault || isEmpty(changes) || edit.isPending}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface FieldProps {
  setting: Setting;
  draft: Draft;
  refusal: string | undefined;
  onChange: (draft: Draft) => void;
}

function SettingField({ setting, draft, refusal, onChange }: FieldProps) {
  const fault = draftFault(setting, draft) ?? refusal;
  return (
    <fieldset className="field plain">
      <legend className="field-label mono">{setting.name}</legend>
      <span className="help">{setting.help}</span>
      <div className="policy-choice">
        <label className="check">
          <input type="checkbox" checked={!draft.isOwn} onChange={() => onChange({ ...draft, isOwn: !draft.isOwn })} />
          Inherit ({valueWords(setting, setting.default)})
        </label>
        {draft.isOwn ? <OwnValue setting={setting} draft={draft} onChange={onChange} /> : null}
      </div>
      {fault ? <p className="fault">{fault}</p> : null}
    </fieldset>
  );
}

function OwnValue({ setting, draft, onChange }: Omit<FieldProps, "refusal">) {
  if (isSwitch(setting))
    return (
      <label className="check">
        <input
          type="checkbox"
          checked={draft.text === "1"}
          onChange={(event) => onChange({ ...draft, text: event.target.checked ? "1" : "0" })}
        />
        Yes
      </label>
    );
  return (
    <>
      <label className="check">
        <input
          className="input short"
          inputMode="numeric"
          aria-label={`${setting.name}: ${setting.unit}`}
          value={draft.text}
          disabled={draft.isForever}
          onChange={(event) => onChange({ ...draft, text: event.target.value.trim() })}
        />
        {setting.unit}
      </label>
      {setting.may_be_none ? (
        <label className="check">
          <input
            type="checkbox"
            checked={draft.isForever}
            onChange={(event) => onChange({ ...draft, isForever: event.target.checked })}
          />
          Keep forever
        </label>
      ) : null}
    </>
  );
}
