// Describes an offline dataset: how many sessions of which jobs were chosen, and which were left out.
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Schemas } from "../../../api/client";
import { Card } from "../../../ui/Cards";
import { plural } from "../../../ui/words/format";

export type DatasetShown = Schemas["DatasetOutput"];

export function DatasetCard({ dataset }: { dataset: DatasetShown }) {
  const numLeftOut = dataset.left_out.reduce((sum, one) => sum + one.num_sessions, 0);
  const rows: readonly Line[] = [
    {
      head: "Trained in each epoch",
      num: plural(dataset.num_sessions, "session"),
      detail: `in ${plural(dataset.num_groups, "group")}, ${plural(dataset.num_batches_per_epoch, "update")}; ${plural(dataset.num_sampled_tokens, "sampled token")}`,
    },
    { head: "Recorded by", num: plural(dataset.jobs.length, "job"), detail: <SourceLinks dataset={dataset} /> },
    ...dataset.left_out.map(({ detail, num_sessions }) => ({
      head: "Left out",
      num: plural(num_sessions, "session"),
      detail,
    })),
  ];
  return (
    <Card title="Offline dataset" note="chosen when the job was submitted" className="span" testId="dataset">
      <table className="table dataset">
        <tbody>
          {rows.map(({ head, num, detail }, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the lines of a dataset never change
            <tr key={i}>
              <th scope="row">{head}</th>
              <td className="number">{num}</td>
              <td className="why">{detail}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {numLeftOut === 0 ? <p className="muted">No recorded sessions were left out.</p> : null}
    </Card>
  );
}

interface Line {
  head: string;
  num: string;
  detail: ReactNode;
}

/** Links to the groups of each job that recorded the dataset. */
export function SourceLinks({ dataset }: { dataset: DatasetShown }) {
  return dataset.jobs.map(({ id, name }, i) => (
    <span key={id}>
      {i ? ", " : ""}
      <Link to={`/jobs/${id}/groups`}>{name}</Link>
    </span>
  ));
}
