// Shows what the policy would delete if it ran now, without deleting anything. The policy itself runs on a schedule.
import { Link } from "react-router";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { bytes, plural } from "../../ui/words/format";
import { partWords } from "./parts";
import { type Part, usePlan } from "./queries";

const NUM_SHOWN = 8;

export function PlanCard({ project }: { project: string }) {
  const plan = usePlan(project);
  const items = plan.data?.items ?? [];
  return (
    <section className="card flush" aria-labelledby="plan">
      <div className="card-head">
        <h2 id="plan">Upcoming deletions</h2>
        <span className="muted">
          {plan.data && items.length > 0
            ? `${plural(items.length, "item")}, ${bytes(plan.data.num_bytes)} in total`
            : null}
        </span>
      </div>
      <Problem error={plan.error} />
      {plan.isPending ? <Loading what="Planning" /> : null}
      {plan.data && items.length === 0 ? (
        <p className="none inset">Nothing is old enough for this project's policy to delete.</p>
      ) : null}
      {items.length > 0 ? <PlanTable items={items} /> : null}
    </section>
  );
}

function PlanTable({ items }: { items: readonly Part[] }) {
  const hidden = items.slice(NUM_SHOWN);
  return (
    <>
      <div className="wide">
        <table className="table" data-testid="plan">
          <thead>
            <tr>
              <th>Item</th>
              <th>Job or upload</th>
              <th className="number">Size</th>
              <th>Reason</th>
            </tr>
          </thead>
          <tbody>
            {items.slice(0, NUM_SHOWN).map((item) => (
              <tr key={`${item.id}-${item.kind}-${item.number}`}>
                <td className="nowrap">{partWords(item)}</td>
                <td>{item.kind === "upload" ? item.name : <Link to={`/jobs/${item.id}`}>{item.name}</Link>}</td>
                <td className="number nowrap">{bytes(item.num_bytes)}</td>
                <td className="why">{item.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {hidden.length > 0 ? (
        <p className="muted inset">
          And {plural(hidden.length, "more item")} ({bytes(hidden.reduce((sum, item) => sum + item.num_bytes, 0))}).{" "}
          <code>seamlessflow storage plan</code> lists them all.
        </p>
      ) : null}
    </>
  );
}
