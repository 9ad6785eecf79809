// The sessions that failed without an outcome: by kind, their length when they failed, and what became of their answers.
import type { JobTopicState } from "../../../live/topics";
import { Card } from "../../../ui/Cards";
import { Icon } from "../../../ui/Icon";
import type { Columns } from "../../../ui/table/columns";
import { Table } from "../../../ui/table/Table";
import { integer } from "../../../ui/words/format";
import type { Failures } from "./failures";

export function FailuresCard({ failures, live }: { failures: Failures; live: JobTopicState }) {
  const bias = [...live.events.values()].find((event) => event.kind === "job.length_bias");
  const { num, numResumed, failedLength, outcomeLength } = failures;
  return (
    <Card
      title="Failed sessions"
      note="in the updates shown; none of them became a reward"
      className="span"
      testId="failures"
    >
      <Table rows={failures.kinds} columns={COLUMNS} keyOf={({ kind }) => kind} className="gap-below" frame="inside" />
      <p className={bias ? "gap-below" : undefined}>
        {failedLength === null || outcomeLength === null
          ? null
          : `They failed after ${integer(failedLength)} sampled tokens on average. Sessions with an outcome have ${integer(outcomeLength)}. `}
        {whatFollowed(num, numResumed)}
      </p>
      {bias ? (
        <div className="note" data-testid="length-bias">
          <Icon name="warning" />
          <p>{bias.reason}</p>
        </div>
      ) : null}
    </Card>
  );
}

const COLUMNS: Columns<Failures["kinds"][number]> = [
  { head: "What happened", cell: ({ words }) => words },
  { head: "Failed attempts", isNumber: true, cell: ({ num }) => integer(num) },
];

function whatFollowed(num: number, numResumed: number): string {
  const [resumed, anew] = [integer(numResumed), integer(num - numResumed)];
  if (numResumed === num) return "All of them went on after their recorded answers, so their length changes nothing.";
  if (numResumed === 0) return "Their slots began anew.";
  return `${resumed} of them went on after their recorded answers; the slots of the other ${anew} began anew.`;
}
