// API tokens: scopes, expiry and last use. Creates and revokes them.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../../api/client";
import { queryClient, useTokens } from "../../api/queries";
import { useServerNow } from "../../live/LiveProvider";
import { Dialog } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import { useTitle } from "../../ui/useTitle";
import { moment, NONE } from "../../ui/words/format";
import { NewTokenDialog } from "./NewTokenDialog";
import { expiryWords, stateOf, type Token } from "./tokenWords";

const PAGE = { limit: 500, offset: 0 };

export default function TokensPage() {
  useTitle("API tokens");
  const tokens = useTokens(PAGE);
  const now = useServerNow(60_000);
  const [isNew, setNew] = useState(false);
  const rows = tokens.data?.results ?? [];
  return (
    <>
      <div className="page-head">
        <div>
          <h1>API tokens</h1>
          <p className="muted">
            Tokens authenticate the command line, the Python client and CI. A token can do what its scopes allow, but
            never more than its creator can.
          </p>
        </div>
        <button type="button" className="button main" onClick={() => setNew(true)}>
          <Icon name="plus" /> New token
        </button>
      </div>
      <Problem error={tokens.error} />
      {tokens.isPending ? <Loading what="Loading tokens" /> : null}
      {tokens.data && rows.length === 0 ? (
        <p className="none">
          No tokens yet. Create one to use <code>seamlessflow</code> or the REST API from another host or from CI.
        </p>
      ) : null}
      {rows.length > 0 ? <TokenTable rows={rows} now={now} /> : null}
      {isNew ? <NewTokenDialog onClose={() => setNew(false)} /> : null}
    </>
  );
}

function TokenTable({ rows, now }: { rows: readonly Token[]; now: number }) {
  return (
    <div className="card flush wide">
      <table className="table" data-testid="tokens">
        <thead>
          <tr>
            <th>Name</th>
            <th>Scopes</th>
            <th>Project</th>
            <th>Created by</th>
            <th>Created</th>
            <th>Last used</th>
            <th>Expires</th>
            <th>State</th>
            <th>
              <span className="visually-hidden">Revoke</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((token) => (
            <tr key={token.id}>
              <td className="nowrap">{token.name}</td>
              <td>
                <span className="tags">
                  {token.scopes.map((scope) => (
                    <span key={scope} className="tag">
                      {scope}
                    </span>
                  ))}
                </span>
              </td>
              <td>{token.project ?? <span className="muted">installation</span>}</td>
              <td>{token.user}</td>
              <td className="nowrap">{moment(Date.parse(token.created_at))}</td>
              <td className="nowrap">{token.last_used_at ? moment(Date.parse(token.last_used_at)) : NONE}</td>
              <td className="nowrap">{expiryWords(token)}</td>
              <td>
                <StateBadge state={stateOf(token, now)} />
              </td>
              <td className="number">{stateOf(token, now) !== "active" ? null : <Revoke token={token} />}</td>
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
        Revoke…
      </button>
      {isAsked ? (
        <Dialog title={`Revoke ${token.name}?`} onClose={() => setAsked(false)}>
          <p>From now on, requests with this token are refused. This cannot be undone.</p>
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
