// API tokens: listed, made (the secret is shown once), revoked.
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, bodyOf, type Schemas } from "../../api/client";
import { queryClient, useMe, useTokens } from "../../api/queries";
import { CopyButton } from "../../ui/CopyButton";
import { Dialog } from "../../ui/Dialog";
import { moment, NONE } from "../../ui/format";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import { useTitle } from "../../ui/useTitle";

type Token = Schemas["TokenOutput"];

const PAGE = { limit: 500, offset: 0 };

export default function TokensPage() {
  useTitle("API tokens");
  const tokens = useTokens(PAGE);
  const [isNew, setNew] = useState(false);
  const rows = tokens.data?.results ?? [];
  return (
    <>
      <div className="page-head">
        <div>
          <h1>API tokens</h1>
          <p className="muted">
            For the command line, the client and CI. A token does what its owner may do in one project.
          </p>
        </div>
        <button type="button" className="button main" onClick={() => setNew(true)}>
          <Icon name="plus" /> New token
        </button>
      </div>
      <Problem error={tokens.error} />
      {tokens.isPending ? <Loading what="Reading the tokens" /> : null}
      {tokens.data && rows.length === 0 ? <p className="none">No token yet.</p> : null}
      {rows.length > 0 ? <TokenTable rows={rows} /> : null}
      {isNew ? <NewToken onClose={() => setNew(false)} /> : null}
    </>
  );
}

function TokenTable({ rows }: { rows: readonly Token[] }) {
  return (
    <div className="card flush wide">
      <table className="table">
        <thead>
          <tr>
            <th>Name</th>
            <th>Owner</th>
            <th>Project</th>
            <th>Made</th>
            <th>Last used</th>
            <th>State</th>
            <th>
              <span className="visually-hidden">Revoke</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((token) => (
            <tr key={token.id}>
              <td>{token.name}</td>
              <td>{token.user}</td>
              <td>{token.project}</td>
              <td className="nowrap">{moment(Date.parse(token.created_at))}</td>
              <td className="nowrap">{token.last_used_at ? moment(Date.parse(token.last_used_at)) : NONE}</td>
              <td>
                <StateBadge state={token.revoked_at ? "revoked" : "active"} />
              </td>
              <td className="number">{token.revoked_at ? null : <Revoke token={token} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Revoke({ token }: { token: Token }) {
  const [isAsked, setAsked] = useState(false);
  const revoke = useMutation({
    mutationFn: () => bodyOf(api.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: token.id } } })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ["tokens"] }),
  });
  return (
    <>
      <button type="button" className="link-button" aria-label={`Revoke ${token.name}`} onClick={() => setAsked(true)}>
        revoke
      </button>
      {isAsked ? (
        <Dialog title={`Revoke ${token.name}?`} onClose={() => setAsked(false)}>
          <p>What uses it is refused from now on. It cannot be taken back.</p>
          <Problem error={revoke.error} />
          <div className="button-row">
            <button type="button" className="button" onClick={() => setAsked(false)}>
              Keep it
            </button>
            <button
              type="button"
              className="button main danger"
              disabled={revoke.isPending}
              onClick={() => revoke.mutate(undefined, { onSuccess: () => setAsked(false) })}
            >
              Revoke the token
            </button>
          </div>
        </Dialog>
      ) : null}
    </>
  );
}

function NewToken({ onClose }: { onClose: () => void }) {
  const projects = useMe().data?.projects.filter((project) => project.may_write) ?? [];
  const [name, setName] = useState("");
  const [project, setProject] = useState("");
  const make = useMutation({
    mutationFn: () => bodyOf(api.POST("/api/v1/tokens", { body: { name, ...(project ? { project } : {}) } })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ["tokens"] }),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate();
  };
  return (
    <Dialog title="New token" onClose={onClose} isWide>
      {make.data ? (
        <Secret secret={make.data.secret} onClose={onClose} />
      ) : (
        <form className="stack" onSubmit={submit}>
          <label className="field">
            <span className="field-label">Name</span>
            <input
              className="input"
              value={name}
              maxLength={120}
              required
              onChange={(event) => setName(event.target.value)}
            />
            <span className="help">What it is for: you will want to know before you revoke it.</span>
          </label>
          {projects.length > 1 ? (
            <label className="field">
              <span className="field-label">Project</span>
              <select value={project} required onChange={(event) => setProject(event.target.value)}>
                <option value="" />
                {projects.map((one) => (
                  <option key={one.slug} value={one.slug}>
                    {one.name}
                  </option>
                ))}
              </select>
            </label>
          ) : null}
          <Problem error={make.error} />
          <div className="button-row">
            <button type="button" className="button" onClick={onClose}>
              Close
            </button>
            <button type="submit" className="button main" disabled={make.isPending}>
              Make it
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

function Secret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <>
      <p>Copy it now: it is shown this once.</p>
      <div className="snippet">
        <pre data-testid="secret">{secret}</pre>
        <CopyButton text={secret} label="Copy the token" />
      </div>
      <div className="button-row">
        <button type="button" className="button main" onClick={onClose}>
          Done
        </button>
      </div>
    </>
  );
}
