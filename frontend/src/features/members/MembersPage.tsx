// The members of a project and their roles. Owners can add, change and remove them.
import { useState } from "react";
import { useSearchParams } from "react-router";
import { useMe } from "../../api/queries";
import { chosenProject, NoProject, ProjectPicker } from "../../pickers/ProjectPicker";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { moment } from "../../ui/words/format";
import { AddMemberDialog, RemoveMemberDialog, RoleSelect } from "./MemberDialogs";
import { type Member, useMemberChange, useMembers } from "./queries";

export default function MembersPage() {
  useTitle("Members");
  const me = useMe();
  const [address] = useSearchParams();
  if (me.error) return <Problem error={me.error} />;
  if (!me.data) return <Loading />;
  const project = chosenProject(me.data.projects, address.get("project"));
  if (!project) return <NoProject asked={address.get("project")} />;
  return (
    <Members
      key={project.slug}
      slug={project.slug}
      isOwner={project.role === "owner"}
      me={me.data.username}
      picker={<ProjectPicker projects={me.data.projects} chosen={project.slug} />}
    />
  );
}

interface Props {
  slug: string;
  isOwner: boolean;
  me: string;
  picker: React.ReactNode;
}

function Members({ slug, isOwner, me, picker }: Props) {
  const members = useMembers(slug);
  const [isNew, setNew] = useState(false);
  const rows = members.data?.results ?? [];
  return (
    <>
      <div className="page-head">
        <div>
          <h1>Members</h1>
          <p className="muted">
            Viewers can see everything in the project. Members can also submit jobs and edit their own. Owners can edit
            everything, including the list of members.
          </p>
        </div>
        {picker}
        {isOwner ? (
          <button type="button" className="button main" onClick={() => setNew(true)}>
            <Icon name="plus" /> Add member
          </button>
        ) : null}
      </div>
      <Problem error={members.error} />
      {members.isPending ? <Loading what="Loading members" /> : null}
      {members.data && rows.length === 0 ? (
        <p className="none">This project has no members yet. Superusers own every project without being listed here.</p>
      ) : null}
      {rows.length > 0 ? <MemberTable rows={rows} slug={slug} isOwner={isOwner} me={me} /> : null}
      {isNew ? <AddMemberDialog slug={slug} onClose={() => setNew(false)} /> : null}
    </>
  );
}

function MemberTable({ rows, slug, isOwner, me }: Omit<Props, "picker"> & { rows: readonly Member[] }) {
  return (
    <div className="card flush wide">
      <table className="table" data-testid="members">
        <thead>
          <tr>
            <th>Name</th>
            <th>Role</th>
            <th>Last sign-in</th>
            <th>
              <span className="visually-hidden">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((member) => (
            <MemberRow
              key={member.username}
              member={member}
              slug={slug}
              isOwner={isOwner}
              isMe={member.username === me}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  member: Member;
  slug: string;
  isOwner: boolean;
  isMe: boolean;
}

function MemberRow({ member, slug, isOwner, isMe }: RowProps) {
  const change = useMemberChange(slug, member.username);
  const [isRemoved, setRemoved] = useState(false);
  return (
    <tr>
      <td>
        {member.username} {isMe ? <span className="muted">(you)</span> : null}
        {member.is_active ? null : <span className="muted"> – account deactivated</span>}
        <Problem error={change.error} />
      </td>
      <td>
        {isOwner ? (
          <RoleSelect
            label={`Role of ${member.username}`}
            value={member.role}
            isDisabled={change.isPending}
            onChange={(role) => change.mutate(role)}
          />
        ) : (
          member.role
        )}
      </td>
      <td className="nowrap">{member.last_sign_in_at ? moment(Date.parse(member.last_sign_in_at)) : "never"}</td>
      <td className="number">
        {isOwner ? (
          <button
            type="button"
            className="link-button"
            aria-label={`Remove ${member.username}`}
            onClick={() => setRemoved(true)}
          >
            Remove…
          </button>
        ) : null}
        {isRemoved ? (
          <RemoveMemberDialog member={member} slug={slug} isMe={isMe} onClose={() => setRemoved(false)} />
        ) : null}
      </td>
    </tr>
  );
}
