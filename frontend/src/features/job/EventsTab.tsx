// What happened to the job, newest first: every move of a state with its reason and author.
import type { EventRow } from "../../live/rows";
import { moment, NONE } from "../../ui/format";
import type { TabProps } from "./JobPage";

export function EventsTab({ live }: TabProps) {
  const rows = [...live.events.values()].sort((a, b) => b.id - a.id);
  if (rows.length === 0) return <p className="none">Nothing has happened yet.</p>;
  return (
    <div className="card flush wide">
      <table className="table">
        <thead>
          <tr>
            <th>At</th>
            <th>What</th>
            <th>Why</th>
            <th>Who</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((event) => (
            <tr key={event.id}>
              <td className="nowrap">{moment(event.at)}</td>
              <td className="nowrap">{whatSaid(event)}</td>
              <td className="why">{event.reason || NONE}</td>
              <td className="nowrap">
                <Author name={event.author} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function whatSaid(event: EventRow): string {
  if (!event.to) return event.kind;
  return event.from ? `${event.kind}: ${event.from} → ${event.to}` : `${event.kind}: ${event.to}`;
}

const LONG_NAME = 30;

/** Identifiers tell a reader little: the kind is shown, the rest on hover. */
export function Author({ name }: { name: string }) {
  return name.length > LONG_NAME ? <span title={name}>{name.split(":")[0]}</span> : <span>{name}</span>;
}
