// The dialogs that add and remove members.
import { useState } from "react";
import { ApiProblem } from "../../api/client";
import { CopyButton } from "../../ui/CopyButton";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Problem";
import { isOneOf } from "../../values/guards";
import { type Member, type Role, useMemberAdd, useMemberRemove } from "./queries";

const ROLES: readonly Role[] = ["viewer", "member", "owner"];

interface SelectProps {
  label: string;
  value: string;
  isDisabled?: boolean;
  onChange: (role: Role) => void;
}

export function RoleSelect({ label, value, isDisabled = false, onChange }: SelectProps) {
  return (
    <select
      aria-label={label}
      value={value}
      disabled={isDisabled}
      onChange={({ target }) => isOneOf(ROLES, target.value) && onChange(target.value)}
    >
      {ROLES.map((role) => (
        <option key={role} value={role}>
          {role}
        </option>
      ))}
    </select>
  );
}

export function AddMemberDialog({ slug, onClose }: { slug: string; onClose: () => void }) {
  const [username, setUsername] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [invite, setInvite] = useState(false);
  const add = useMemberAdd(slug);
  const link = add.data?.sign_in_link;
  if (link) return <Link username={username} link={link} onClose={onClose} />;
  const isUnknown = add.error instanceof ApiProblem && add.error.faults.some(({ field }) => field === "username");
  return (
    <Dialog title="Add member" onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          add.mutate({ username, role, invite }, { onSuccess: (added) => !added.sign_in_link && onClose() });
        }}
      >
        <label className="field">
          <span className="field-label">User name</span>
          <input
            className="input"
            value={username}
            maxLength={150}
            required
            aria-invalid={isUnknown}
            onChange={(event) => setUsername(event.target.value)}
          />
        </label>
        <div className="field">
          <span className="field-label">Role</span>
          <RoleSelect label="Role" value={role} onChange={setRole} />
        </div>
        <label className="check">
          <input type="checkbox" checked={invite} onChange={(event) => setInvite(event.target.checked)} />
          <span>
            Create the account if it does not exist <span className="muted">and give me a sign-in link for it</span>
          </span>
        </label>
        <Problem error={add.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button main" disabled={add.isPending}>
            Add
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Link({ username, link, onClose }: { username: string; link: string; onClose: () => void }) {
  return (
    <Dialog title={`${username} was added`} onClose={onClose} isWide>
      <p>Send this link to {username}. It works once, expires after a day, and is not shown again.</p>
      <div className="snippet">
        <pre data-testid="sign-in-link">{link}</pre>
        <CopyButton text={link} label="Copy the link" />
      </div>
      <div className="button-row">
        <button type="button" className="button main" onClick={onClose}>
          Done
        </button>
      </div>
    </Dialog>
  );
}

interface RemoveProps {
  member: Member;
  slug: string;
  isMe: boolean;
  onClose: () => void;
}

export function RemoveMemberDialog({ member, slug, isMe, onClose }: RemoveProps) {
  const remove = useMemberRemove(slug, member.username);
  return (
    <Dialog title={`Remove ${member.username} from ${slug}?`} onClose={onClose}>
      <p>
        {isMe ? "You lose access to this project immediately, and your" : "Their"} tokens for this project are revoked.
        Running jobs continue.
      </p>
      <Problem error={remove.error} />
      <div className="button-row">
        <button type="button" className="button" onClick={onClose}>
          Keep member
        </button>
        <button
          type="button"
          className="button main danger"
          disabled={remove.isPending}
          onClick={() => remove.mutate(undefined, { onSuccess: onClose })}
        >
          Remove
        </button>
      </div>
    </Dialog>
  );
}
