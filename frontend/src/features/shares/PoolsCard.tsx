// Pools of machines, who may use each, and for operators the grants.
import { useState } from "react";
import { Dialog } from "../../ui/Dialog";
import { ReasonField } from "../../ui/fields/ReasonField";
import { Icon } from "../../ui/Icon";
import { Problem } from "../../ui/Problem";
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
  const rows = pools.data?.results ?? [];
  return (
    <section className="card flush wide" aria-labelledby="pools">
      <div className="card-head">
        <h2 id="pools">Pools</h2>
        <span className="muted">A pool is a group of machines that only the projects it is granted to may use.</span>
      </div>
      <Problem error={pools.error} />
      <table className="table roomy" data-testid="pools">
        <thead>
          <tr>
            <th>Pool</th>
            <th className="number">Machines</th>
            <th>Open to</th>
            {mayEdit ? (
              <th>
                <span className="visually-hidden">Grant</span>
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {rows.map((pool) => (
            <tr key={pool.name}>
              <td className="nowrap">{pool.name}</td>
              <td className="number">{pool.num_machines}</td>
              <td>
                <Grants pool={pool} onRevoke={mayEdit ? (slug) => setAsked({ pool, revoked: slug }) : null} />
              </td>
              {mayEdit ? (
                <td className="number">
                  <button type="button" className="link-button" onClick={() => setAsked({ pool, revoked: null })}>
                    Grant<span className="visually-hidden"> {pool.name}</span>…
                  </button>
                </td>
              ) : null}
            </tr>
          ))}
        </tbody>
      </table>
      {asked?.revoked ? (
        <RevokeDialog pool={asked.pool} slug={asked.revoked} onClose={() => setAsked(null)} />
      ) : asked ? (
        <GrantDialog pool={asked.pool} projects={projects} onClose={() => setAsked(null)} />
      ) : null}
    </section>
  );
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
  const [reason, setReason] = useState("");
  const grant = usePoolGrant();
  return (
    <Dialog title={`Grant the pool ${pool.name}`} onClose={onClose}>
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
        <div className="field">
          <span className="field-label">Project</span>
          <select aria-label="Project" value={slug} onChange={(event) => setSlug(event.target.value)}>
            {left.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </div>
      )}
      <ReasonField reason={reason} onChange={setReason} />
      <Problem error={grant.error} />
      <div className="button-row">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          className="button main"
          disabled={slug === "" || grant.isPending}
          onClick={() => grant.mutate({ pool: pool.name, slug, reason: reason.trim() }, { onSuccess: onClose })}
        >
          Grant
        </button>
      </div>
    </Dialog>
  );
}

function RevokeDialog({ pool, slug, onClose }: { pool: Pool; slug: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const revoke = usePoolRevoke();
  const isLast = pool.name === "default" && pool.projects.length === 1;
  return (
    <Dialog title={`Revoke ${pool.name} from ${slug}?`} onClose={onClose}>
      <p>
        {isLast
          ? "It is the last grant of this pool, so the pool is open to every project again."
          : `What ${slug} runs on the machines of this pool is handed over or drained.`}
      </p>
      <ReasonField reason={reason} onChange={setReason} />
      <Problem error={revoke.error} />
      <div className="button-row">
        <button type="button" className="button" onClick={onClose}>
          Keep the grant
        </button>
        <button
          type="button"
          className="button main danger"
          disabled={revoke.isPending}
          onClick={() => revoke.mutate({ pool: pool.name, slug, reason: reason.trim() }, { onSuccess: onClose })}
        >
          Revoke
        </button>
      </div>
    </Dialog>
  );
}
