// Follows the logs of a machine's child processes: all phases of a role one after another (a child outlives its
// phases), or one phase. The trainer's log is the most useful, so it is shown first. The user's choice is kept.
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { useManyPhases } from "../../../api/queries";
import type { PhaseRow } from "../../../live/rows";
import { Button } from "../../../ui/Button";
import { Loading } from "../../../ui/Loading";
import { Problem } from "../../../ui/Problem";
import { bytes, integer, plural, utcClock } from "../../../ui/words/format";
import { phasesInOrder, withLive } from "../phases/phaseRows";
import type { TabProps } from "../tab";
import { type Lane, lanesOf, neighbours } from "./logPlan";
import { useLog } from "./useLog";

const AT_END_PX = 40;

export function LogsTab({ jobId, live }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const read = useManyPhases(jobId);
  const stored = useMemo(() => read.data?.pages.flatMap(({ results }) => results) ?? [], [read.data]);
  const phases = useMemo(() => withLive(stored, live.phases), [stored, live.phases]);
  const lanes = useMemo(() => lanesOf(phases), [phases]);
  const [first, setFirst] = useState<string>();
  const phaseId = address.get("phase");
  const offered = lanes[0]?.key;
  useEffect(() => {
    // Another machine may join training. Keep the shown log, or it would jump.
    setFirst((known) => known ?? offered);
  }, [offered]);
  const key = phaseId ?? address.get("of") ?? first ?? "";
  const near = phaseId === null ? undefined : neighbours(lanes, phaseId);
  useOlderUntil(phaseId !== null && near === undefined, read);
  const lane = near?.lane ?? lanes.find((one) => one.key === key);
  const shown = phaseId === null ? lane?.phases : lane?.phases.filter((phase) => phase.id === phaseId);
  const [stream, setStream] = useState("");
  const log = useLog(`${key}@${read.data?.pages.length}`, read.data ? (shown ?? []) : [], stream);
  if (read.error) return <Problem error={read.error} />;
  if (read.isPending) return <Loading what="Loading phases" />;
  if (lanes.length === 0) return <p className="none">No machines have been leased yet.</p>;
  const count = Math.max(read.data.pages[0]?.count ?? 0, phases.length);
  const choose = (value: string) => {
    setStream("");
    setAddress(value.includes(":") ? { of: value } : { phase: value }, { replace: true });
  };
  return (
    <section className="card log-card">
      <div className="card-head">
        <label>
          <span className="visually-hidden">Log source</span>
          <select value={key} onChange={(event) => choose(event.target.value)}>
            <Choices lanes={lanes} />
          </select>
        </label>
        {log.streams.length > 1 ? (
          <label>
            <span className="visually-hidden">Stream</span>
            <select value={log.stream} onChange={(event) => setStream(event.target.value)}>
              {log.streams.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        ) : null}
        {near ? (
          <nav className="log-nav" aria-label="Phases of this role on this machine">
            <PhaseLink jobId={jobId} phase={near.before} word="Previous phase" />
            <PhaseLink jobId={jobId} phase={near.after} word="Next phase" />
            <Link to={`/jobs/${jobId}/logs?of=${near.lane.key}`}>All phases ({near.lane.phases.length})</Link>
          </nav>
        ) : null}
        {read.hasNextPage ? (
          <span className="muted">
            newest {integer(phases.length)} of {integer(count)} phases{" "}
            <Button look="link" disabled={read.isFetching} onClick={() => void read.fetchNextPage()}>
              Show older phases
            </Button>
          </span>
        ) : (
          <span className="muted" data-testid="num-phases">
            {plural(count, "phase")}
          </span>
        )}
        <span className="muted end">{log.problem || (log.numBytes ? bytes(log.numBytes) : "no output yet")}</span>
      </div>
      {log.text ? (
        <LogText text={log.text} />
      ) : (
        <p className="none">
          Nothing has been printed here. What an agent prints is on the page of its{" "}
          <Link to={`/jobs/${jobId}/groups`}>session</Link>, under Output.
        </p>
      )}
    </section>
  );
}

/** Reads older pages until the phase that a link points to is found. */
function useOlderUntil(isLacking: boolean, read: ReturnType<typeof useManyPhases>) {
  const { hasNextPage, isFetching, fetchNextPage } = read;
  useEffect(() => {
    if (isLacking && hasNextPage && !isFetching) void fetchNextPage();
  }, [isLacking, hasNextPage, isFetching, fetchNextPage]);
}

function Choices({ lanes }: { lanes: readonly Lane[] }) {
  return (
    <>
      <optgroup label="All phases of a role on a machine">
        {lanes.map((lane) => (
          <option key={lane.key} value={lane.key}>
            {lane.role} on {lane.machine}, {plural(lane.phases.length, "phase")}
          </option>
        ))}
      </optgroup>
      <optgroup label="One phase">
        {phasesInOrder(lanes.flatMap((lane) => lane.phases)).map((phase) => (
          <option key={phase.id} value={phase.id}>
            {phaseText(phase)}
          </option>
        ))}
      </optgroup>
    </>
  );
}

function PhaseLink({ jobId, phase, word }: { jobId: string; phase: PhaseRow | undefined; word: string }) {
  return phase ? (
    <Link to={`/jobs/${jobId}/logs?phase=${phase.id}`}>{word}</Link>
  ) : (
    <span className="muted">{word}</span>
  );
}

function LogText({ text }: { text: string }) {
  const host = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new text is what makes it scroll.
  useEffect(() => {
    if (host.current && isAtEnd.current) host.current.scrollTop = host.current.scrollHeight;
  }, [text]);
  return (
    <pre
      ref={host}
      className="log"
      data-testid="log"
      // A region that scrolls must be reachable by keyboard.
      // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
      tabIndex={0}
      role="log"
      aria-label="Log"
      aria-live="off"
      onScroll={(event) => {
        const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < AT_END_PX;
      }}
    >
      {text}
    </pre>
  );
}

function phaseText(phase: PhaseRow): string {
  return `${phase.role} on ${phase.machine}, ${utcClock(phase.leased_at)}, fence ${phase.fence}, ${phase.state}`;
}
