// Creates an API token for a project or the installation, with scopes and an expiry. Its secret is shown once.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, bodyOf, faultOf } from "../../api/client";
import { queryClient, useMe } from "../../api/queries";
import { Check, FieldGroup, SelectField, TextField } from "../../ui/form/Field";
import { FormDialog } from "../../ui/form/FormDialog";
import { SecretDialog } from "../../ui/form/SecretDialog";
import { limits } from "../../values/limits";
import { DEFAULT_DAYS, DEFAULT_SCOPES, daysFault, MAX_DAYS, type Scope, scopesFor } from "./tokenWords";

/** The option that stands for the installation instead of a project. */
const INSTALLATION = "";

export function NewTokenDialog({ onClose }: { onClose: () => void }) {
  const me = useMe().data;
  const projects = me?.projects.filter((project) => project.role !== "viewer") ?? [];
  const [name, setName] = useState("");
  const [picked, setPicked] = useState<string>();
  const project = picked ?? projects[0]?.slug ?? INSTALLATION;
  const [scopes, setScopes] = useState<ReadonlySet<Scope>>(DEFAULT_SCOPES);
  const [days, setDays] = useState(String(DEFAULT_DAYS));
  const offered = scopesFor(project === INSTALLATION);
  const chosen = offered.map(({ scope }) => scope).filter((scope) => scopes.has(scope));
  const owner = project === INSTALLATION ? { installation: true } : { project };
  const make = useMutation({
    mutationFn: () =>
      bodyOf(api.POST("/api/v1/tokens", { body: { name, scopes: chosen, expires_in_days: Number(days), ...owner } })),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ["tokens"] }),
  });
  if (make.data)
    return (
      <SecretDialog title="New token" secret={make.data.secret} name="the token" testId="secret" onClose={onClose}>
        Copy the token now. It is not shown again.
      </SecretDialog>
    );
  const options = projects.map((one) => [one.slug, one.name] as const);
  const installation = [INSTALLATION, "Installation: all your projects, plus machines"] as const;
  return (
    <FormDialog
      title="New token"
      act="Create token"
      isWide
      isBlocked={chosen.length === 0 || daysFault(days) !== undefined}
      sent={make}
      onSend={() => make.mutate()}
      onClose={onClose}
    >
      <TextField
        label="Name"
        help="What the token is used for, so that you know later whether it is safe to revoke."
        value={name}
        onChange={setName}
        maxLength={limits.DisplayName.maxLength}
        required
      />
      <SelectField
        label="Project"
        value={project}
        options={me?.is_staff ? [...options, installation] : options}
        onChange={setPicked}
      />
      <FieldGroup
        label="Scopes"
        fault={chosen.length === 0 ? "Choose at least one scope." : faultOf(make.error, "scopes")}
      >
        {offered.map(({ scope, meaning }) => (
          <Check
            key={scope}
            isChecked={scopes.has(scope)}
            onChange={(isChosen) => setScopes(new Set(isChosen ? [...scopes, scope] : without(scopes, scope)))}
          >
            <code>{scope}</code> <span className="muted">{meaning}</span>
          </Check>
        ))}
      </FieldGroup>
      <TextField
        label={
          <>
            Expires after <span className="muted">(days)</span>
          </>
        }
        help={`1 to ${MAX_DAYS}. A CI pipeline needs a new token after that.`}
        fault={daysFault(days) ?? faultOf(make.error, "expires_in_days")}
        isShort
        inputMode="numeric"
        value={days}
        onChange={(text) => setDays(text.trim())}
      />
    </FormDialog>
  );
}

function without(scopes: ReadonlySet<Scope>, scope: Scope): Scope[] {
  return [...scopes].filter((one) => one !== scope);
}
