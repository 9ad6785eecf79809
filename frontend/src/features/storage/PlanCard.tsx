// Shows the deletions that the policy would make now, without deleting anything. The policy itself runs on a schedule.
import { Link } from "react-router";
import { Card } from "../../ui/Cards";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { bytes, plural } from "../../ui/words/format";
import { partWords } from "./parts";
import { type Part, usePlan } from "./queries";

const NUM_SHOWN = 8;

export function PlanCard({ project }: { project: string }) {
  const plan = usePlan(project);
  const items = plan.data?.items ?? [];
  const hidden = items.slice(NUM_SHOWN);
  const note = `${plural(items.length, "item")}, ${bytes(plan.data?.num_bytes ?? 0)} in total`;
  return (
    <Card title="Upcoming deletions" note={items.length > 0 ? note : null} className="flush">
      <Problem error={plan.error} />
      {plan.isPending ? <Loading what="Planning" /> : null}
      {plan.data && items.length === 0 ? (
        <p className="none inset">Nothing is old enough for this project's policy to delete.</p>
      ) : null}
      {items.length > 0 ? (
        <Table
          rows={items.slice(0, NUM_SHOWN)}
          columns={COLUMNS}
          keyOf={(item) => `${item.id}-${item.kind}-${item.number}`}
          testId="plan"
          frame="inside"
        />
      ) : null}
      {hidden.length > 0 ? (
        <p className="muted inset">
          And {plural(hidden.length, "more item")} ({bytes(hidden.reduce((sum, item) => sum + item.num_bytes, 0))}).{" "}
          <code>seamlessflow storage plan</code> lists them all.
        </p>
      ) : null}
    </Card>
  );
}

const COLUMNS: Columns<Part> = [
  { head: "Item", className: "nowrap", cell: partWords },
  {
    head: "Job or upload",
    cell: (item) => (item.kind === "upload" ? item.name : <Link to={`/jobs/${item.id}`}>{item.name}</Link>),
  },
  { head: "Size", isNumber: true, className: "nowrap", cell: (item) => bytes(item.num_bytes) },
  { head: "Reason", className: "why", cell: (item) => item.reason },
];
