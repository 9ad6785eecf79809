// API tokens: scopes, expiry and last use. Creates and revokes them.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf } from "../../api/client";
import { queryClient, useTokens } from "../../api/queries";
import { useServerNow } from "../../live/LiveProvider";
import { Button } from "../../ui/Button";
import { FormDialog } from "../../ui/form/FormDialog";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
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
  const [revoked, setRevoked] = useState<Token>();
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
        <Button look="main" icon="plus" onClick={() => setNew(true)}>
          New token
        </Button>
      </div>
      <Problem error={tokens.error} />
      {tokens.isPending ? <Loading what="Loading tokens" /> : null}
      {tokens.data && rows.length === 0 ? (
        <p className="none">
          No tokens yet. Create one to use <code>seamlessflow</code> or the REST API from another host or from CI.
        </p>
      ) : null}
      {rows.length > 0 ? (
        <Table
          rows={rows}
          columns={columnsOf(now, setRevoked)}
          keyOf={(token) => token.id}
          testId="tokens"
          sortedBy="sort"
        />
      ) : null}
      {isNew ? <NewTokenDialog onClose={() => setNew(false)} /> : null}
      {revoked ? <RevokeDialog token={revoked} onClose={() => setRevoked(undefined)} /> : null}
    </>
  );
}

function columnsOf(now: number, onRevoke: (token: Token) => void): Columns<Token> {
  return [
    { head: "Name", className: "nowrap", order: (token) => token.name, cell: (token) => token.name },
    { head: "Scopes", className: "scopes", cell: (token) => <Scopes token={token} /> },
    {
      head: "Project",
      order: (token) => token.project,
      cell: (token) => token.project ?? <span className="muted">installation</span>,
    },
    { head: "Created by", order: (token) => token.user, cell: (token) => token.user },
    {
      head: "Created",
      className: "nowrap",
      order: (token) => token.created_at,
      cell: (token) => moment(Date.parse(token.created_at)),
    },
    {
      head: "Last used",
      className: "nowrap",
      order: (token) => token.last_used_at,
      cell: (token) => (token.last_used_at ? moment(Date.parse(token.last_used_at)) : NONE),
    },
    { head: "Expires", className: "nowrap", order: (token) => token.expires_at, cell: expiryWords },
    {
      head: "State",
      order: (token) => stateOf(token, now),
      cell: (token) => <StateBadge state={stateOf(token, now)} />,
    },
    {
      head: "Revoke",
      isHeadHidden: true,
      isNumber: true,
      cell: (token) =>
        stateOf(token, now) === "active" ? (
          <Button look="link" aria-label={`Revoke ${token.name}`} onClick={() => onRevoke(token)}>
            Revoke…
          </Button>
        ) : null,
    },
  ];
}

function Scopes({ token }: { token: Token }) {
  return (
    <span className="tags">
      {token.scopes.map((scope) => (
        <span key={scope} className="tag">
          {scope}
        </span>
      ))}
    </span>
  );
}

function RevokeDialog({ token, onClose }: { token: Token; onClose: () => void }) {
  const revoke = useMutation({
    mutationFn: () => bodyOf(api.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: token.id } } })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ["tokens"] }),
  });
  return (
    <FormDialog
      title={`Revoke ${token.name}?`}
      act="Revoke the token"
      keep="Keep it"
      isDanger
      sent={revoke}
      onSend={() => revoke.mutate(undefined, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>From now on, requests with this token are refused. This cannot be undone.</p>
    </FormDialog>
  );
}
