// The retention policy of the project, or the installation defaults that projects inherit.
import { useState } from "react";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Cards";
import { Segments } from "../../ui/fields/Segments";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { PolicyDialog } from "./PolicyDialog";
import { valueWords } from "./policy";
import { type Setting, usePolicy } from "./queries";

interface Props {
  project: string;
  isOwner: boolean;
  isOperator: boolean;
}

const LEVELS = ["project", "installation"] as const;

export function PolicyCard({ project, isOwner, isOperator }: Props) {
  const [level, setLevel] = useState<(typeof LEVELS)[number]>("project");
  const [isEdited, setEdited] = useState(false);
  const of = level === "project" ? project : null;
  const policy = usePolicy(of);
  const mayEdit = of === null ? isOperator : isOwner;
  const settings = (policy.data?.settings ?? []).filter((setting) => of === null || !setting.is_of_installation);
  const note =
    of === null
      ? "defaults that projects inherit"
      : "values that the project leaves unset are inherited from the installation";
  const end = (
    <span className="button-row">
      {isOperator ? <Segments legend="Policy level" values={LEVELS} value={level} onChange={setLevel} isSmall /> : null}
      {mayEdit ? (
        <Button icon="pencil" onClick={() => setEdited(true)} disabled={!policy.data}>
          Edit
        </Button>
      ) : null}
    </span>
  );
  return (
    <Card title="Retention policy" note={note} end={end} className="flush">
      <Problem error={policy.error} />
      {policy.isPending ? <Loading what="Loading policy" /> : null}
      {settings.length > 0 ? (
        <Table
          rows={settings}
          columns={columnsOf(of !== null)}
          keyOf={(setting) => setting.name}
          testId="policy"
          frame="inside"
        />
      ) : null}
      {isEdited ? <PolicyDialog of={of} settings={settings} onClose={() => setEdited(false)} /> : null}
    </Card>
  );
}

function columnsOf(isProject: boolean): Columns<Setting> {
  return [
    { head: "Setting", className: "nowrap mono", cell: (setting) => setting.name },
    { head: "Value", className: "nowrap", cell: (setting) => <strong>{valueWords(setting, setting.value)}</strong> },
    { head: "Set by", className: "nowrap muted", cell: (setting) => setByWords(setting, isProject) },
    { head: "Meaning", className: "why", cell: (setting) => setting.help },
  ];
}

function setByWords(setting: Setting, isProject: boolean): string {
  if (setting.is_own) return isProject ? "this project" : "this installation";
  return isProject ? "inherited" : "default";
}
