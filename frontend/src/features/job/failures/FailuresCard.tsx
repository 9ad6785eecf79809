// The sessions that failed without an outcome: by kind, their length when they failed, and what became of their answers.
import type { JobTopicState } from "../../../live/topics";
import { Icon } from "../../../ui/Icon";
import { integer } from "../../../ui/words/format";
import type { Failures } from "./failures";

export function FailuresCard({ failures, live }: { failures: Failures; live: JobTopicState }) {
  const bias = [...live.events.values()].find((event) => event.kind === "job.length_bias");
  const { num, numResumed, failedLength, outcomeLength } = failures;
  return (
    <section className="card span" data-testid="failures">
      <div className="card-head">
        <h2>Failed sessions</h2>
        <span className="muted">in the updates shown; none of them became a reward</span>
      </div>
      <table className="table gap-below">
        <thead>
          <tr>
            <th>What happened</th>
            <th className="number">Failed attempts</th>
          </tr>
        </thead>
        <tbody>
          {failures.kinds.map(({ kind, words, num: numOfKind }) => (
            <tr key={kind}>
              <td>{words}</td>
              <td className="number">{integer(numOfKind)}</td>
            </tr>
          ))}
        </tbody>
      </table>
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
    </section>
  );
}

function whatFollowed(num: number, numResumed: number): string {
  const [resumed, anew] = [integer(numResumed), integer(num - numResumed)];
  if (numResumed === num) return "All of them went on after their recorded answers, so their length changes nothing.";
  if (numResumed === 0) return "Their slots began anew.";
  return `${resumed} of them went on after their recorded answers; the slots of the other ${anew} began anew.`;
}
