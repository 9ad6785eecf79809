// The events of a job, newest first: every state change with its reason and author.
import { Link } from "react-router";
import { type EventSubjects, useJobEvents } from "../../../api/queries";
import { useTopic } from "../../../live/LiveProvider";
import { MACHINES } from "../../../live/topics";
import { Segments } from "../../../ui/fields/Segments";
import { StateBadge } from "../../../ui/StateBadge";
import type { Columns } from "../../../ui/table/columns";
import { PagedTable, usePage } from "../../../ui/table/PagedTable";
import { oneOf, useViewState } from "../../../ui/useViewState";
import { moment, NONE } from "../../../ui/words/format";
import { shownId } from "../../../ui/words/shownId";
import type { TabProps } from "../tab";
import { authorText, type JobEvent, outcomeOf, subjectText } from "./eventWords";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;
// Groups change state dozens of times a second, so their events are shown only on request.
const FILTERS = ["all except groups", "job", "phases", "versions", "groups", "sessions"] as const;
const SUBJECTS: Record<(typeof FILTERS)[number], EventSubjects> = {
  "all except groups": "job,phase,version,session",
  job: "job",
  phases: "phase",
  versions: "version",
  groups: "group",
  sessions: "session",
};
const ABOUT = oneOf(FILTERS);

export function EventsTab({ jobId, job }: TabProps) {
  const [about, setAbout] = useViewState("about", ABOUT);
  const { page } = usePage(PAGE_SIZE);
  const events = useJobEvents(jobId, { ...page, subject: SUBJECTS[about] }, job.ended_at === null ? EVERY_MS : false);
  const machines = useTopic(MACHINES.name, MACHINES.definition)?.machines;
  const names = new Map([...(machines?.values() ?? [])].map((machine) => [machine.id, machine.name]));
  const machineOf = (uuid: string) => (uuid ? names.get(shownId("mac", uuid)) : undefined);
  return (
    <>
      <div className="toolbar">
        <Segments legend="About" values={FILTERS} value={about} onChange={setAbout} />
      </div>
      <PagedTable
        read={events}
        what="events"
        none="No events of this kind yet."
        limit={PAGE_SIZE}
        columns={columnsOf(jobId, machineOf)}
        keyOf={(event) => event.id}
        testId="events"
      />
    </>
  );
}

function columnsOf(jobId: string, machineOf: (uuid: string) => string | undefined): Columns<JobEvent> {
  return [
    { head: "Time", className: "nowrap", cell: (event) => moment(Date.parse(event.at)) },
    {
      head: "Subject",
      className: "nowrap",
      cell: (event) => <Subject jobId={jobId} event={event} wording={subjectText(event, machineOf)} />,
    },
    { head: "Change", className: "nowrap", cell: (event) => <Happened event={event} /> },
    { head: "Reason", className: "why", cell: (event) => event.reason || NONE },
    {
      head: "Actor",
      className: "nowrap",
      title: (event) => event.author,
      cell: (event) => authorText(event.author),
    },
  ];
}

/** Links a phase to its log and a session to its page. */
function Subject({ jobId, event, wording }: { jobId: string; event: JobEvent; wording: string }) {
  if (event.kind.startsWith("session."))
    return <Link to={`/sessions/${shownId("ses", event.subject_id)}`}>{wording}</Link>;
  if (event.kind !== "phase.state") return wording;
  return <Link to={`/jobs/${jobId}/logs?phase=${shownId("pha", event.subject_id)}`}>{wording}</Link>;
}

function Happened({ event }: { event: JobEvent }) {
  const outcome = outcomeOf(event);
  if ("wording" in outcome) return outcome.wording;
  return (
    <>
      {outcome.from ? <span className="muted">{outcome.from} → </span> : null}
      <StateBadge state={outcome.to} />
    </>
  );
}
