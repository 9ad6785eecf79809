// Pools of machines, who may use each, and for operators the grants.
import { useState } from "react";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Cards";
import { SelectField } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { Icon } from "../../ui/Icon";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { plural } from "../../ui/words/format";
import { type Pool, usePoolGrant, usePoolRevoke, usePools } from "./queries";

interface Props {
  mayEdit: boolean;
  projects: readonly string[];
}

type Asked = { pool: Pool; revoked: string | null };

export function PoolsCard({ mayEdit, projects }: Props) {
  const pools = usePools();
  const [asked, setAsked] = useState<Asked | null>(null);
  const close = () => setAsked(null);
  return (
    <Card
      title="Pools"
      note="A pool is a group of machines that only the projects it is granted to may use."
      className="flush"
    >
      <Problem error={pools.error} />
      <Table
        rows={pools.data?.results ?? []}
        columns={columnsOf(mayEdit ? setAsked : null)}
        keyOf={(pool) => pool.name}
        testId="pools"
        className="roomy"
        frame="inside"
      />
      {asked?.revoked ? <RevokeDialog pool={asked.pool} slug={asked.revoked} onClose={close} /> : null}
      {asked?.revoked === null ? <GrantDialog pool={asked.pool} projects={projects} onClose={close} /> : null}
    </Card>
  );
}

function columnsOf(onAsk: ((asked: Asked) => void) | null): Columns<Pool> {
  return [
    { head: "Pool", className: "nowrap", cell: (pool) => pool.name },
    { head: "Machines", isNumber: true, cell: (pool) => pool.num_machines },
    {
      head: "Open to",
      cell: (pool) => <Grants pool={pool} onRevoke={onAsk && ((revoked) => onAsk({ pool, revoked }))} />,
    },
    onAsk && {
      head: "Grant",
      isHeadHidden: true,
      isNumber: true,
      cell: (pool) => (
        <Button look="link" onClick={() => onAsk({ pool, revoked: null })}>
          Grant<span className="visually-hidden"> {pool.name}</span>…
        </Button>
      ),
    },
  ];
}

function Grants({ pool, onRevoke }: { pool: Pool; onRevoke: ((slug: string) => void) | null }) {
  if (pool.is_open) return <>every project</>;
  if (pool.projects.length === 0) return <span className="muted">no project</span>;
  return (
    <span className="tags">
      {pool.projects.map((slug) => (
        <span key={slug} className="tag">
          {slug}
          {onRevoke ? (
            <button
              type="button"
              className="tag-remove"
              aria-label={`Revoke ${pool.name} from ${slug}`}
              onClick={() => onRevoke(slug)}
            >
              <Icon name="close" />
            </button>
          ) : null}
        </span>
      ))}
    </span>
  );
}

interface GrantProps {
  pool: Pool;
  projects: readonly string[];
  onClose: () => void;
}

function GrantDialog({ pool, projects, onClose }: GrantProps) {
  const left = projects.filter((slug) => !pool.projects.includes(slug));
  const [slug, setSlug] = useState(left[0] ?? "");
  const grant = usePoolGrant();
  return (
    <FormDialog
      title={`Grant the pool ${pool.name}`}
      act="Grant"
      isBlocked={slug === ""}
      reason="optional"
      sent={grant}
      onSend={(reason) => grant.mutate({ pool: pool.name, slug, reason }, { onSuccess: onClose })}
      onClose={onClose}
    >
      {pool.is_open ? (
        <div className="note">
          <Icon name="warning" />
          <p>
            This pool is open to every project. Once it is granted to one, only projects with a grant may use it, and
            the work of all others on its {plural(pool.num_machines, "machine")} is drained.
          </p>
        </div>
      ) : null}
      {left.length === 0 ? (
        <p>Every project has a grant of this pool already.</p>
      ) : (
        <SelectField label="Project" value={slug} options={left.map((one) => [one, one])} onChange={setSlug} />
      )}
    </FormDialog>
  );
}

function RevokeDialog({ pool, slug, onClose }: { pool: Pool; slug: string; onClose: () => void }) {
  const revoke = usePoolRevoke();
  const isLast = pool.name === "default" && pool.projects.length === 1;
  return (
    <FormDialog
      title={`Revoke ${pool.name} from ${slug}?`}
      act="Revoke"
      keep="Keep the grant"
      isDanger
      reason="optional"
      sent={revoke}
      onSend={(reason) => revoke.mutate({ pool: pool.name, slug, reason }, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>
        {isLast
          ? "It is the last grant of this pool, so the pool is open to every project again."
          : `What ${slug} runs on the machines of this pool is handed over or drained.`}
      </p>
    </FormDialog>
  );
}
