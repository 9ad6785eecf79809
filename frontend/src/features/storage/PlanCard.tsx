// What the policy would delete if it ran now. It runs by the clock; this changes nothing.
import { Link } from "react-router";
import { bytes, plural } from "../../ui/format";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { partWords } from "./parts";
import { type Part, usePlan } from "./queries";

const NUM_SHOWN = 8;

export function PlanCard({ project }: { project: string }) {
  const plan = usePlan(project);
  const items = plan.data?.items ?? [];
  return (
    <section className="card flush" aria-labelledby="plan">
      <div className="card-head">
        <h2 id="plan">What the policy will delete next</h2>
        <span className="muted">
          {plan.data && items.length > 0
            ? `${plural(items.length, "thing")}, ${bytes(plan.data.num_bytes)} in all`
            : null}
        </span>
      </div>
      <Problem error={plan.error} />
      {plan.isPending ? <Loading what="Planning" /> : null}
      {plan.data && items.length === 0 ? (
        <p className="none inset">Nothing is old enough to be deleted by the policy of this project.</p>
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
              <th>Of</th>
              <th className="number">Size</th>
              <th>Why</th>
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
          And {plural(hidden.length, "more thing")} of {bytes(hidden.reduce((sum, item) => sum + item.num_bytes, 0))};{" "}
          <code>seamlessflow storage plan</code> lists them all.
        </p>
      ) : null}
    </>
  );
}
