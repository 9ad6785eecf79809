// The retention policy of the project, or the installation defaults that projects inherit.
import { useState } from "react";
import { Segments } from "../../ui/fields/Segments";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { PolicyDialog } from "./PolicyDialog";
import { valueWords } from "./policy";
import { type Setting, usePolicy } from "./queries";

interface Props {
  project: string;
  isOwner: boolean;
  isOperator: boolean;
}

type Level = "project" | "installation";

export function PolicyCard({ project, isOwner, isOperator }: Props) {
  const [level, setLevel] = useState<Level>("project");
  const [isEdited, setEdited] = useState(false);
  const of = level === "project" ? project : null;
  const policy = usePolicy(of);
  const mayEdit = of === null ? isOperator : isOwner;
  const settings = (policy.data?.settings ?? []).filter((setting) => of === null || !setting.is_of_installation);
  return (
    <section className="card flush" aria-labelledby="policy">
      <div className="card-head">
        <h2 id="policy">Retention policy</h2>
        <span className="muted">
          {of === null
            ? "defaults that projects inherit"
            : "what the project leaves unset is inherited from the installation"}
        </span>
        <span className="end button-row">
          {isOperator ? (
            <Segments
              legend="Policy level"
              values={["project", "installation"] as const}
              value={level}
              onChange={setLevel}
              isSmall
            />
          ) : null}
          {mayEdit ? (
            <button type="button" className="button" onClick={() => setEdited(true)} disabled={!policy.data}>
              <Icon name="pencil" /> Edit
            </button>
          ) : null}
        </span>
      </div>
      <Problem error={policy.error} />
      {policy.isPending ? <Loading what="Loading policy" /> : null}
      {settings.length > 0 ? <PolicyTable settings={settings} isProject={of !== null} /> : null}
      {isEdited ? <PolicyDialog of={of} settings={settings} onClose={() => setEdited(false)} /> : null}
    </section>
  );
}

function PolicyTable({ settings, isProject }: { settings: readonly Setting[]; isProject: boolean }) {
  return (
    <div className="wide">
      <table className="table" data-testid="policy">
        <thead>
          <tr>
            <th>Setting</th>
            <th>Value</th>
            <th>Set by</th>
            <th>Meaning</th>
          </tr>
        </thead>
        <tbody>
          {settings.map((setting) => (
            <tr key={setting.name}>
              <td className="nowrap mono">{setting.name}</td>
              <td className="nowrap">
                <strong>{valueWords(setting, setting.value)}</strong>
              </td>
              <td className="nowrap muted">{setByWords(setting, isProject)}</td>
              <td className="why">{setting.help}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function setByWords(setting: Setting, isProject: boolean): string {
  if (setting.is_own) return isProject ? "this project" : "this installation";
  return isProject ? "inherited" : "default";
}
