// Describes an offline dataset: how many sessions of which jobs were chosen, and what was left out.
import { Link } from "react-router";
import type { Schemas } from "../../../api/client";
import { plural } from "../../../ui/words/format";

export type DatasetShown = Schemas["DatasetOutput"];

export function DatasetCard({ dataset }: { dataset: DatasetShown }) {
  const numLeftOut = dataset.left_out.reduce((sum, one) => sum + one.num_sessions, 0);
  return (
    <section className="card span" data-testid="dataset">
      <div className="card-head">
        <h2>Offline dataset</h2>
        <span className="muted">chosen when the job was submitted</span>
      </div>
      <table className="table dataset">
        <tbody>
          <tr>
            <th scope="row">Trained in each epoch</th>
            <td className="number">{plural(dataset.num_sessions, "session")}</td>
            <td className="why">
              in {plural(dataset.num_groups, "group")}, {plural(dataset.num_batches_per_epoch, "update")};{" "}
              {plural(dataset.num_sampled_tokens, "sampled token")}
            </td>
          </tr>
          <tr>
            <th scope="row">Recorded by</th>
            <td className="number">{plural(dataset.jobs.length, "job")}</td>
            <td className="why">
              <SourceLinks dataset={dataset} />
            </td>
          </tr>
          {dataset.left_out.map(({ reason, detail, num_sessions }) => (
            <tr key={reason}>
              <th scope="row">Left out</th>
              <td className="number">{plural(num_sessions, "session")}</td>
              <td className="why">{detail}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {numLeftOut === 0 ? <p className="muted">No recorded sessions were left out.</p> : null}
    </section>
  );
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
