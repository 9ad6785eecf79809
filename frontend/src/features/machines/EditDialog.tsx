// Edits the desired state of a machine: tags, cordon, drain. A dry run first shows the effect on everything that runs.
// The edit needs a reason, and is refused (412) if someone else edited the machine in the meantime.
import { useMutation } from "@tanstack/react-query";
import { type KeyboardEvent, useState } from "react";
import { ApiProblem } from "../../api/client";
import { type MachineEdit, machineRead, useMachineEdit, usePreview } from "../../api/queries";
import type { MachineRow } from "../../live/rows";
import { Dialog } from "../../ui/Dialog";
import { ReasonField } from "../../ui/fields/ReasonField";
import { Icon } from "../../ui/Icon";
import { Problem } from "../../ui/Problem";
import { isOneOf } from "../../values/guards";
import { PreviewResult } from "./PreviewResult";
import { editOf, isChanged, ROLES, tagFault, tagsInOrder, tagsWith } from "./tags";

const STALE = 412;

type Seen = Pick<MachineRow, "tags" | "is_cordoned" | "is_draining" | "pool" | "cost" | "generation">;

interface Props {
  machine: MachineRow;
  /** Tags that the dialog proposes to add, separated by commas. */
  added: string;
  onClose: () => void;
}

export function EditDialog({ machine, added, onClose }: Props) {
  // The state when the dialog opened. The user decides on it, so it must still hold when the edit is sent.
  const [seen, setSeen] = useState<Seen>(machine);
  const [edit, setEdit] = useState(() => {
    const now = editOf(machine);
    return { ...now, tags: tagsWith(now.tags, added) };
  });
  const [reason, setReason] = useState("");
  const wanted = isChanged(seen, edit) && !Number.isNaN(edit.cost) ? edit : null;
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
  const submit = () => {
    if (!wanted) return;
    send.mutate({ edit: wanted, reason, generation: seen.generation }, { onSuccess: onClose });
  };
  return (
    <Dialog title={`Edit ${machine.name}`} onClose={onClose} isWide>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <TagField tags={edit.tags} onChange={(tags) => setEdit({ ...edit, tags })} />
        <StateFields edit={edit} onChange={setEdit} />
        <label className="field">
          <span className="field-label">Pool</span>
          <input
            className="input"
            value={edit.pool}
            maxLength={63}
            required
            pattern="[a-z0-9]([a-z0-9\-]*[a-z0-9])?"
            title="a–z, 0-9 and -, with a letter or digit at both ends"
            onChange={(event) => setEdit({ ...edit, pool: event.target.value.trim() })}
          />
          <span className="muted">Only projects with a grant of the pool may use the machine; see Shares.</span>
        </label>
        <label className="field">
          <span className="field-label">Cost</span>
          <input
            className="input"
            type="number"
            value={Number.isNaN(edit.cost) ? "" : edit.cost}
            min={0.01}
            max={1000}
            step="any"
            required
            onChange={(event) => setEdit({ ...edit, cost: event.target.valueAsNumber })}
          />
          <span className="muted">
            What the machine counts in shares: 1 for an ordinary one, 2 for one worth two of them.
          </span>
        </label>
        {wanted ? <PreviewResult preview={preview} /> : <p className="muted">No changes yet.</p>}
        <ReasonField reason={reason} onChange={setReason} isRequired />
        {isStale ? <Stale onReload={() => reload.mutate()} /> : <Problem error={send.error} />}
        <Problem error={reload.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            className="button main"
            disabled={!wanted || preview.isFetching || preview.isError || send.isPending || isStale}
          >
            Apply
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Stale({ onReload }: { onReload: () => void }) {
  return (
    <div className="note" role="alert">
      <Icon name="warning" />
      <div>
        <p>Someone else edited this machine in the meantime. Your edit was not applied.</p>
        <button type="button" className="link-button" onClick={onReload}>
          Load the current settings
        </button>
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
    <fieldset className="field plain">
      <legend className="field-label">Tags</legend>
      <div className="role-checks">
        {ROLES.map((role) => (
          <label key={role} className="check">
            <input
              type="checkbox"
              checked={tags.includes(role)}
              onChange={(event) =>
                onChange(event.target.checked ? tagsWith(tags, role) : tags.filter((tag) => tag !== role))
              }
            />
            {role}
          </label>
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
          placeholder="Add a tag, such as gpu=h200"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKey}
          onBlur={() => text.trim() && add()}
        />
      </div>
      {fault ? <p className="fault">{fault}</p> : null}
    </fieldset>
  );
}

function StateFields({ edit, onChange }: { edit: MachineEdit; onChange: (edit: MachineEdit) => void }) {
  return (
    <fieldset className="field plain">
      <legend className="field-label">Scheduling</legend>
      <label className="check">
        <input
          type="checkbox"
          checked={edit.is_cordoned || edit.is_draining}
          disabled={edit.is_draining}
          onChange={(event) => onChange({ ...edit, is_cordoned: event.target.checked })}
        />
        <span>
          Cordon <span className="muted">takes no new work; running work continues</span>
        </span>
      </label>
      <label className="check">
        <input
          type="checkbox"
          checked={edit.is_draining}
          onChange={(event) =>
            onChange({ ...edit, is_draining: event.target.checked, is_cordoned: event.target.checked })
          }
        />
        <span>
          Drain <span className="muted">hands over its running work, then idles</span>
        </span>
      </label>
    </fieldset>
  );
}
