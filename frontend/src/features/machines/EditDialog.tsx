// Edits the desired state of a machine: tags, cordon, drain. A dry run first shows the effect on everything that runs.
// The edit needs a reason, and is refused (412) if someone else edited the machine in the meantime.
import { useMutation } from "@tanstack/react-query";
import { type KeyboardEvent, useState } from "react";
import { ApiProblem } from "../../api/client";
import { type MachineEdit, machineRead, useMachineEdit, usePreview } from "../../api/queries";
import type { MachineRow } from "../../live/rows";
import { Button } from "../../ui/Button";
import { Check, FieldGroup, TextField } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { Icon } from "../../ui/Icon";
import { isOneOf } from "../../values/guards";
import { PreviewResult } from "./PreviewResult";
import { editOf, isChanged, ROLES, SETTINGS, shapeOf, tagFault, tagsInOrder, tagsWith } from "./tags";

const STALE = 412;

type Seen = Pick<MachineRow, keyof MachineEdit | "generation">;

interface Props {
  machine: MachineRow;
  /** Tags that the dialog proposes to add, separated by commas. */
  added: string;
  onClose: () => void;
}

export function EditDialog({ machine, added, onClose }: Props) {
  // The state when the dialog opened. The user decides on it, so it must still be true when the edit is sent.
  const [seen, setSeen] = useState<Seen>(machine);
  const [edit, setEdit] = useState(() => {
    const now = editOf(machine);
    return { ...now, tags: tagsWith(now.tags, added) };
  });
  const wanted = isChanged(seen, edit) && !Object.values(edit).some(Number.isNaN) ? edit : null;
  const preview = usePreview(machine.id, wanted);
  const send = useMachineEdit(machine.id);
  const isStale = send.error instanceof ApiProblem && send.error.status === STALE;
  const reload = useMutation({
    // Over REST, because the live socket may lag behind the other edit.
    mutationFn: () => machineRead(machine.id),
    onSuccess: (now) => {
      setSeen(now);
      setEdit(editOf(now));
      send.reset();
    },
  });
  const submit = (reason: string) => {
    if (wanted) send.mutate({ edit: wanted, reason, generation: seen.generation }, { onSuccess: onClose });
  };
  return (
    <FormDialog
      title={`Edit ${machine.name}`}
      act="Apply"
      isWide
      isBlocked={!wanted || preview.isFetching || preview.isError || isStale}
      reason="required"
      sent={{ isPending: send.isPending, error: reload.error ?? (isStale ? null : send.error) }}
      onSend={submit}
      onClose={onClose}
    >
      <TagField tags={edit.tags} onChange={(tags) => setEdit({ ...edit, tags })} />
      <StateFields edit={edit} onChange={setEdit} />
      {SETTINGS.map((name) => (
        <SettingField
          key={`${name} ${seen.generation}`}
          name={name}
          value={edit[name]}
          onChange={(value) => setEdit({ ...edit, [name]: value })}
        />
      ))}
      {wanted ? <PreviewResult preview={preview} /> : <p className="muted">No changes yet.</p>}
      {isStale ? <Stale onReload={() => reload.mutate()} /> : null}
    </FormDialog>
  );
}

function Stale({ onReload }: { onReload: () => void }) {
  return (
    <div className="note" role="alert">
      <Icon name="warning" />
      <div>
        <p>Someone else edited this machine in the meantime. Your edit was not applied.</p>
        <Button look="link" onClick={onReload}>
          Load the current settings
        </Button>
      </div>
    </div>
  );
}

function TagField({ tags, onChange }: { tags: readonly string[]; onChange: (tags: string[]) => void }) {
  const [text, setText] = useState("");
  const [fault, setFault] = useState<string>();
  const others = tagsInOrder(tags).filter((tag) => !isOneOf(ROLES, tag));
  const add = () => {
    const next = tagsWith(tags, text);
    const found = next.map(tagFault).find((one) => one !== undefined);
    setFault(found);
    if (found) return;
    onChange(next);
    setText("");
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== ",") return;
    event.preventDefault();
    if (text.trim()) add();
  };
  return (
    <FieldGroup label="Tags" fault={fault}>
      <div className="role-checks">
        {ROLES.map((role) => (
          <Check
            key={role}
            isChecked={tags.includes(role)}
            onChange={(isOn) => onChange(isOn ? tagsWith(tags, role) : tags.filter((tag) => tag !== role))}
          >
            {role}
          </Check>
        ))}
      </div>
      <div className="tags">
        {others.map((tag) => (
          <span key={tag} className="tag">
            {tag}
            <button
              type="button"
              className="tag-remove"
              aria-label={`Remove ${tag}`}
              onClick={() => onChange(tags.filter((one) => one !== tag))}
            >
              <Icon name="close" />
            </button>
          </span>
        ))}
        <input
          className="input"
          aria-label="Add a tag"
          aria-invalid={fault !== undefined}
          placeholder="Add a tag, such as gpu=h200"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKey}
          onBlur={() => text.trim() && add()}
        />
      </div>
    </FieldGroup>
  );
}

function StateFields({ edit, onChange }: { edit: MachineEdit; onChange: (edit: MachineEdit) => void }) {
  return (
    <FieldGroup label="Scheduling">
      <Check
        isChecked={edit.is_cordoned || edit.is_draining}
        isDisabled={edit.is_draining}
        onChange={(is_cordoned) => onChange({ ...edit, is_cordoned })}
      >
        Cordon <span className="muted">takes no new work; running work continues</span>
      </Check>
      <Check
        isChecked={edit.is_draining}
        onChange={(is_draining) => onChange({ ...edit, is_draining, is_cordoned: is_draining })}
      >
        Drain <span className="muted">hands over its running work, then idles</span>
      </Check>
    </FieldGroup>
  );
}

type SettingProps = { name: keyof MachineEdit; value: unknown; onChange: (value: string | number) => void };

/** A field of the desired state that is a text or a number, by its declaration. It keeps the text as typed. */
function SettingField({ name, value, onChange }: SettingProps) {
  const { type, title, description, minimum, maximum, maxLength, pattern, "x-accepted": accepted } = shapeOf(name);
  const [text, setText] = useState(String(value));
  const isText = type === "string";
  const read = (typed: string) => {
    setText(typed);
    onChange(isText ? typed.trim() : typed.trim() === "" ? Number.NaN : Number(typed));
  };
  return (
    <TextField
      label={title}
      help={description}
      type={isText ? "text" : "number"}
      value={text}
      onChange={read}
      {...{ maxLength, pattern, title: accepted, min: minimum, max: maximum, step: "any" }}
      required
    />
  );
}
