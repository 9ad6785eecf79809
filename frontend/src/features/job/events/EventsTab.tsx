// The events of a job, newest first: every state change with its reason and author.
import { Link, useSearchParams } from "react-router";
import { type EventSubjects, useJobEvents } from "../../../api/queries";
import { useTopic } from "../../../live/LiveProvider";
import { MACHINES } from "../../../live/topics";
import { Segments } from "../../../ui/fields/Segments";
import { Loading } from "../../../ui/Loading";
import { Pager } from "../../../ui/Pager";
import { Problem } from "../../../ui/Problem";
import { StateBadge } from "../../../ui/StateBadge";
import { moment, NONE } from "../../../ui/words/format";
import { shownId } from "../../../ui/words/shownId";
import type { TabProps } from "../tab";
import { authorSaid, type JobEvent, outcomeOf, subjectSaid } from "./eventWords";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;
// Groups change state dozens of times a second, so their events are shown only on request.
const FILTERS: Record<string, EventSubjects> = {
  "all except groups": "job,phase,version,session",
  job: "job",
  phases: "phase",
  versions: "version",
  groups: "group",
  sessions: "session",
};
const FIRST = "all except groups";

export function EventsTab({ jobId, job }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const asked = address.get("about") ?? FIRST;
  const about = asked in FILTERS ? asked : FIRST;
  const offset = Number(address.get("offset") ?? 0) || 0;
  const query = { limit: PAGE_SIZE, offset, subject: FILTERS[about] };
  const events = useJobEvents(jobId, query, job.ended_at === null ? EVERY_MS : false);
  const rows = events.data?.results ?? [];
  const move = (next: string, to: number) =>
    setAddress(
      { ...(next === FIRST ? {} : { about: next }), ...(to ? { offset: String(to) } : {}) },
      { replace: true },
    );
  return (
    <>
      <div className="toolbar">
        <Segments legend="About" values={Object.keys(FILTERS)} value={about} onChange={(next) => move(next, 0)} />
      </div>
      <Problem error={events.error} />
      {events.isPending ? <Loading what="Loading events" /> : null}
      {events.data && rows.length === 0 ? <p className="none">No events of this kind yet.</p> : null}
      {rows.length > 0 ? <EventTable jobId={jobId} rows={rows} /> : null}
      <Pager offset={offset} limit={PAGE_SIZE} count={events.data?.count ?? 0} onMove={(to) => move(about, to)} />
    </>
  );
}

function EventTable({ jobId, rows }: { jobId: string; rows: readonly JobEvent[] }) {
  const machines = useTopic(MACHINES.name, MACHINES.definition)?.machines;
  const names = new Map([...(machines?.values() ?? [])].map((machine) => [machine.id, machine.name]));
  const machineOf = (uuid: string) => (uuid ? names.get(shownId("mac", uuid)) : undefined);
  return (
    <div className="card flush wide">
      <table className="table" data-testid="events">
        <thead>
          <tr>
            <th>Time</th>
            <th>Subject</th>
            <th>Change</th>
            <th>Reason</th>
            <th>Actor</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((event) => (
            <tr key={event.id}>
              <td className="nowrap">{moment(Date.parse(event.at))}</td>
              <td className="nowrap">
                <Subject jobId={jobId} event={event} said={subjectSaid(event, machineOf)} />
              </td>
              <td className="nowrap">
                <Happened event={event} />
              </td>
              <td className="why">{event.reason || NONE}</td>
              <td className="nowrap" title={event.author}>
                {authorSaid(event.author)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Links a phase to its log and a session to its page. */
function Subject({ jobId, event, said }: { jobId: string; event: JobEvent; said: string }) {
  if (event.kind.startsWith("session."))
    return <Link to={`/sessions/${shownId("ses", event.subject_id)}`}>{said}</Link>;
  if (event.kind !== "phase.state") return said;
  return <Link to={`/jobs/${jobId}/logs?phase=${shownId("pha", event.subject_id)}`}>{said}</Link>;
}

function Happened({ event }: { event: JobEvent }) {
  const outcome = outcomeOf(event);
  if ("said" in outcome) return outcome.said;
  return (
    <>
      {outcome.from ? <span className="muted">{outcome.from} → </span> : null}
      <StateBadge state={outcome.to} />
    </>
  );
}
