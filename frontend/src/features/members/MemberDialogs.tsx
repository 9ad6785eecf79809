// The dialogs that add and remove members.
import { useState } from "react";
import { faultOf } from "../../api/client";
import { Check, SelectField, TextField } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { SecretDialog } from "../../ui/form/SecretDialog";
import { limits } from "../../values/limits";
import { type Member, ROLES, type Role, useMemberAdd, useMemberRemove } from "./queries";

export function AddMemberDialog({ slug, onClose }: { slug: string; onClose: () => void }) {
  const [username, setUsername] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [invite, setInvite] = useState(false);
  const add = useMemberAdd(slug);
  const link = add.data?.sign_in_link;
  if (link)
    return (
      <SecretDialog
        title={`${username} was added`}
        secret={link}
        name="the link"
        testId="sign-in-link"
        onClose={onClose}
      >
        Send this link to {username}. It works once, expires after a day, and is not shown again.
      </SecretDialog>
    );
  return (
    <FormDialog
      title="Add member"
      act="Add"
      sent={add}
      onSend={() => add.mutate({ username, role, invite }, { onSuccess: (added) => !added.sign_in_link && onClose() })}
      onClose={onClose}
    >
      <TextField
        label="User name"
        value={username}
        onChange={setUsername}
        fault={faultOf(add.error, "username")}
        maxLength={limits.UserName.maxLength}
        required
      />
      <SelectField label="Role" value={role} options={ROLES} onChange={setRole} />
      <Check isChecked={invite} onChange={setInvite}>
        Create the account if it does not exist <span className="muted">and give me a sign-in link for it</span>
      </Check>
    </FormDialog>
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
    <FormDialog
      title={`Remove ${member.username} from ${slug}?`}
      act="Remove"
      keep="Keep member"
      isDanger
      sent={remove}
      onSend={() => remove.mutate(undefined, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>
        {isMe ? "You lose access to this project immediately, and your" : "Their"} tokens for this project are revoked.
        Running jobs continue.
      </p>
    </FormDialog>
  );
}
