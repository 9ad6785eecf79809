// Edits a policy: each setting is inherited or has its own value. Errors are shown beside their fields.
import { useState } from "react";
import { ApiProblem } from "../../api/client";
import { Check, FieldGroup } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
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
    <FormDialog
      title={of === null ? "Installation defaults" : `Retention policy of ${of}`}
      act="Save"
      isWide
      isBlocked={hasFault || isEmpty(changes)}
      sent={edit}
      onSend={() => edit.mutate(changes, { onSuccess: onClose })}
      onClose={onClose}
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
      <p className="muted">
        The policy runs every hour. Once you save, this page shows what the new values will delete.
      </p>
    </FormDialog>
  );
}

interface FieldProps {
  setting: Setting;
  draft: Draft;
  refusal: string | undefined;
  onChange: (draft: Draft) => void;
}

function SettingField({ setting, draft, refusal, onChange }: FieldProps) {
  const label = <span className="mono">{setting.name}</span>;
  return (
    <FieldGroup label={label} help={setting.help} fault={draftFault(setting, draft) ?? refusal}>
      <div className="policy-choice">
        <Check isChecked={!draft.isOwn} onChange={(isInherited) => onChange({ ...draft, isOwn: !isInherited })}>
          Inherit ({valueWords(setting, setting.default)})
        </Check>
        {draft.isOwn ? <OwnValue setting={setting} draft={draft} onChange={onChange} /> : null}
      </div>
    </FieldGroup>
  );
}

function OwnValue({ setting, draft, onChange }: Omit<FieldProps, "refusal">) {
  if (isSwitch(setting))
    return (
      <Check isChecked={draft.text === "1"} onChange={(isOn) => onChange({ ...draft, text: isOn ? "1" : "0" })}>
        Yes
      </Check>
    );
  return (
    <>
      <label className="check">
        <input
          className="input short"
          inputMode="numeric"
          aria-label={`${setting.name}: ${setting.unit}`}
          aria-invalid={draftFault(setting, draft) !== undefined}
          value={draft.text}
          disabled={draft.isForever}
          onChange={(event) => onChange({ ...draft, text: event.target.value.trim() })}
        />
        {setting.unit}
      </label>
      {setting.may_be_none ? (
        <Check isChecked={draft.isForever} onChange={(isForever) => onChange({ ...draft, isForever })}>
          Keep forever
        </Check>
      ) : null}
    </>
  );
}
