// Creates an API token for a project or the installation, with scopes and an expiry. Its secret is shown once.
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiProblem, api, bodyOf } from "../../api/client";
import { queryClient, useMe } from "../../api/queries";
import { CopyButton } from "../../ui/CopyButton";
import { Dialog } from "../../ui/Dialog";
import { Problem } from "../../ui/Problem";
import { DEFAULT_DAYS, DEFAULT_SCOPES, daysFault, MAX_DAYS, type Scope, scopesFor } from "./tokenWords";

/** The option that stands for the installation instead of a project. */
const INSTALLATION = "";

export function NewTokenDialog({ onClose }: { onClose: () => void }) {
  const me = useMe().data;
  const projects = me?.projects.filter((project) => project.role !== "viewer") ?? [];
  const [name, setName] = useState("");
  const [project, setProject] = useState(projects[0]?.slug ?? INSTALLATION);
  const [scopes, setScopes] = useState<ReadonlySet<Scope>>(DEFAULT_SCOPES);
  const [days, setDays] = useState(String(DEFAULT_DAYS));
  const offered = scopesFor(project === INSTALLATION);
  const chosen = offered.map(({ scope }) => scope).filter((scope) => scopes.has(scope));
  const place = project === INSTALLATION ? { installation: true } : { project };
  const make = useMutation({
    mutationFn: () =>
      bodyOf(api.POST("/api/v1/tokens", { body: { name, scopes: chosen, expires_in_days: Number(days), ...place } })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ["tokens"] }),
  });
  const faults = make.error instanceof ApiProblem ? make.error.faults : [];
  const said = (field: string) => faults.find((fault) => fault.field === field)?.detail;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate();
  };
  if (make.data)
    return (
      <Dialog title="New token" onClose={onClose} isWide>
        <Secret secret={make.data.secret} onClose={onClose} />
      </Dialog>
    );
  return (
    <Dialog title="New token" onClose={onClose} isWide>
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
          <span className="help">
            What the token is used for, so that you can tell later whether it is safe to revoke.
          </span>
        </label>
        <label className="field">
          <span className="field-label">Project</span>
          <select value={project} onChange={(event) => setProject(event.target.value)}>
            {projects.map((one) => (
              <option key={one.slug} value={one.slug}>
                {one.name}
              </option>
            ))}
            {me?.is_staff ? <option value={INSTALLATION}>Installation: all your projects, plus machines</option> : null}
          </select>
        </label>
        <fieldset className="field plain">
          <legend className="field-label">Scopes</legend>
          {offered.map(({ scope, meaning }) => (
            <label key={scope} className="check">
              <input
                type="checkbox"
                checked={scopes.has(scope)}
                onChange={() => setScopes(new Set(scopes.has(scope) ? without(scopes, scope) : [...scopes, scope]))}
              />
              <span>
                <code>{scope}</code> <span className="muted">{meaning}</span>
              </span>
            </label>
          ))}
          {chosen.length === 0 ? <p className="fault">Choose at least one scope.</p> : null}
          {said("scopes") ? <p className="fault">{said("scopes")}</p> : null}
        </fieldset>
        <label className="field">
          <span className="field-label">
            Expires after <span className="muted">(days)</span>
          </span>
          <input
            className="input short"
            inputMode="numeric"
            value={days}
            onChange={(event) => setDays(event.target.value.trim())}
          />
          <span className="help">1 to {MAX_DAYS}. A CI pipeline needs a new token after that.</span>
          {(daysFault(days) ?? said("expires_in_days")) ? (
            <span className="fault">{daysFault(days) ?? said("expires_in_days")}</span>
          ) : null}
        </label>
        <Problem error={make.error} />
        <div className="button-row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button
            type="submit"
            className="button main"
            disabled={make.isPending || chosen.length === 0 || daysFault(days) !== undefined}
          >
            Create token
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function without(scopes: ReadonlySet<Scope>, scope: Scope): Scope[] {
  return [...scopes].filter((one) => one !== scope);
}

function Secret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <>
      <p>Copy the token now. It is not shown again.</p>
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
