// One job of the queue: the machines that it lacks and who has them on the left, edits that would help on the right.
import { Link } from "react-router";
import { Button } from "../../ui/Button";
import { Icon } from "../../ui/Icon";
import { StateBadge } from "../../ui/StateBadge";
import { duration } from "../../ui/words/format";
import { actionOf, lackText, type Offer, placeText, type QueueEntry } from "./queueRows";

interface Props {
  entry: QueueEntry;
  hasProjects: boolean;
  onPriority: (proposed: number) => void;
}

export function QueueCard({ entry, hasProjects, onPriority }: Props) {
  return (
    <section className="card queue-card" aria-label={`${entry.job_name} ${lackText(entry.lack)}`}>
      <div className="queue-head">
        <span className="queue-place" title={entry.place === null ? undefined : "Its place among all waiting jobs"}>
          {placeText(entry)}
        </span>
        <h2>
          <Link to={`/jobs/${entry.job_id}`}>{entry.job_name}</Link>
        </h2>
        <StateBadge state={entry.state} />
        <span className="muted facts">
          {hasProjects ? <span>{entry.project}</span> : null}
          {entry.created_by ? <span>by {entry.created_by}</span> : null}
          {entry.waiting_s > 0 ? <span>waits for {duration(entry.waiting_s * 1000)}</span> : null}
          <span>priority {entry.priority}</span>
        </span>
        {entry.may_edit ? (
          <Button look="link" isAtEnd onClick={() => onPriority(entry.priority)}>
            Change priority<span className="visually-hidden"> of {entry.job_name}</span>…
          </Button>
        ) : null}
      </div>
      <div className="queue-body">
        <Lacks entry={entry} />
        <Offers entry={entry} onPriority={onPriority} />
      </div>
    </section>
  );
}

function Lacks({ entry }: { entry: QueueEntry }) {
  return (
    <div className="queue-part">
      <h3>What it lacks</h3>
      <p>{entry.sentence}</p>
      {entry.shortages.map((shortage) => (
        <div key={shortage.role}>
          <p>{shortage.sentence}</p>
          <ul className="queue-holders">
            {shortage.holders.map((holder) => (
              <li key={holder.machine_id}>
                {holder.sentence}{" "}
                {holder.job_id && holder.job_id !== entry.job_id ? (
                  <Link className="underlined" to={`/jobs/${holder.job_id}`}>
                    Open<span className="visually-hidden"> the job {holder.job_name}</span>
                  </Link>
                ) : null}
              </li>
            ))}
          </ul>
        </div>
      ))}
    </div>
  );
}

function Offers({ entry, onPriority }: { entry: QueueEntry; onPriority: (proposed: number) => void }) {
  if (entry.unblocks.length === 0) {
    return (
      <div className="queue-part">
        <h3>What would help</h3>
        <p className="muted">
          {entry.place === null
            ? "No single retag would give it more."
            : "No single retag, quota or priority would let it begin."}
        </p>
      </div>
    );
  }
  return (
    <div className="queue-part">
      <h3>What would help</h3>
      <ol className="queue-offers">
        {entry.unblocks.map((offer, index) => (
          <li key={offer.kind}>
            <span>
              {index === 0 ? <span className="queue-cheapest">Cheapest</span> : null}
              {offer.sentence}
            </span>
            <OfferAction offer={offer} onPriority={onPriority} />
          </li>
        ))}
      </ol>
    </div>
  );
}

interface ActionProps {
  offer: Offer;
  onPriority: (proposed: number) => void;
}

function OfferAction({ offer, onPriority }: ActionProps) {
  const action = actionOf(offer);
  if (!action) return offer.may_do ? null : <span className="muted nowrap">for {whoMay(offer)}</span>;
  if ("to" in action) {
    return (
      <Link className="button" to={action.to}>
        {action.word} <Icon name="chevron" />
      </Link>
    );
  }
  return <Button onClick={() => onPriority(action.priority)}>{action.word}</Button>;
}

function whoMay(offer: Offer): string {
  return offer.kind === "priority" ? "its author or an owner" : "operators";
}
