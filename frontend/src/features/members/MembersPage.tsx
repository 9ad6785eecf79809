// The members of a project and their roles. Owners can add, change and remove them.
import { useState } from "react";
import { useSearchParams } from "react-router";
import { useMe } from "../../api/queries";
import { chosenProject, NoProject, ProjectPicker } from "../../pickers/ProjectPicker";
import { Button } from "../../ui/Button";
import { Select } from "../../ui/form/Field";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { useTitle } from "../../ui/useTitle";
import { moment } from "../../ui/words/format";
import { AddMemberDialog, RemoveMemberDialog } from "./MemberDialogs";
import { type Member, ROLES, useMemberChange, useMembers } from "./queries";

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
  const [removed, setRemoved] = useState<Member>();
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
          <Button look="main" icon="plus" onClick={() => setNew(true)}>
            Add member
          </Button>
        ) : null}
      </div>
      <Problem error={members.error} />
      {members.isPending ? <Loading what="Loading members" /> : null}
      {members.data && rows.length === 0 ? (
        <p className="none">This project has no members yet. Superusers own every project without being listed here.</p>
      ) : null}
      {rows.length > 0 ? (
        <Table
          rows={rows}
          columns={columnsOf({ slug, isOwner, me }, setRemoved)}
          keyOf={(member) => member.username}
          testId="members"
          sortedBy="sort"
        />
      ) : null}
      {isNew ? <AddMemberDialog slug={slug} onClose={() => setNew(false)} /> : null}
      {removed ? (
        <RemoveMemberDialog
          member={removed}
          slug={slug}
          isMe={removed.username === me}
          onClose={() => setRemoved(undefined)}
        />
      ) : null}
    </>
  );
}

function columnsOf({ slug, isOwner, me }: Omit<Props, "picker">, onRemove: (member: Member) => void): Columns<Member> {
  return [
    {
      head: "Name",
      order: (member) => member.username,
      cell: (member) => (
        <>
          {member.username} {member.username === me ? <span className="muted">(you)</span> : null}
          {member.is_active ? null : <span className="muted"> – account deactivated</span>}
        </>
      ),
    },
    {
      head: "Role",
      order: (member) => member.role,
      cell: (member) => (isOwner ? <RoleOf member={member} slug={slug} /> : member.role),
    },
    {
      head: "Last sign-in",
      className: "nowrap",
      order: (member) => member.last_sign_in_at,
      cell: (member) => (member.last_sign_in_at ? moment(Date.parse(member.last_sign_in_at)) : "never"),
    },
    {
      head: "Remove",
      isHeadHidden: true,
      isNumber: true,
      cell: (member) =>
        isOwner ? (
          <Button look="link" aria-label={`Remove ${member.username}`} onClick={() => onRemove(member)}>
            Remove…
          </Button>
        ) : null,
    },
  ];
}

function RoleOf({ member, slug }: { member: Member; slug: string }) {
  const change = useMemberChange(slug, member.username);
  return (
    <>
      <Select
        aria-label={`Role of ${member.username}`}
        value={ROLES.find(([role]) => role === member.role)?.[0] ?? "viewer"}
        options={ROLES}
        disabled={change.isPending}
        onChange={(role) => change.mutate(role)}
      />
      <Problem error={change.error} />
    </>
  );
}
