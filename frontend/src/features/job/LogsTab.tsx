// The output of one phase's children, followed. A trainer's tells most, so it is shown first; a phase that was chosen
// stays chosen.
import { useEffect, useRef, useState } from "react";
import { useSearchParams } from "react-router";
import type { PhaseRow } from "../../live/rows";
import { bytes, clock } from "../../ui/format";
import type { TabProps } from "./JobPage";
import { phasesInOrder } from "./PhasesTab";
import { useLog } from "./useLog";

const AT_END_PX = 40;

export function LogsTab({ live }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const phases = phasesInOrder(live.phases.values());
  const [first, setFirst] = useState<string>();
  const chosen = address.get("phase") ?? first;
  const [stream, setStream] = useState("");
  const offered = firstChoice(phases);
  useEffect(() => {
    // Phases may live for seconds only: what is shown stays, or the log would jump.
    setFirst((known) => known ?? offered);
  }, [offered]);
  const log = useLog(chosen, stream);
  if (phases.length === 0) return <p className="none">No machine has been leased yet.</p>;
  const choose = (id: string) => {
    setStream("");
    setAddress({ phase: id }, { replace: true });
  };
  return (
    <section className="card log-card">
      <div className="card-head">
        <label>
          <span className="visually-hidden">Phase</span>
          <select value={chosen ?? ""} onChange={(event) => choose(event.target.value)}>
            {phases.map((phase) => (
              <option key={phase.id} value={phase.id}>
                {phaseSaid(phase)}
              </option>
            ))}
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
        <span className="muted end">{log.problem || (log.offset ? bytes(log.offset) : "nothing was written yet")}</span>
      </div>
      <LogText text={log.text} />
    </section>
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

function phaseSaid(phase: PhaseRow): string {
  return `${phase.role} on ${phase.machine}, ${clock(phase.leased_at)}, fence ${phase.fence}, ${phase.state}`;
}

function firstChoice(phases: readonly PhaseRow[]): string | undefined {
  const trainers = phases.filter((phase) => phase.role === "train");
  const isLive = (phase: PhaseRow) => phase.ended_at === null;
  return (trainers.find(isLive) ?? trainers[0] ?? phases.find(isLive) ?? phases[0])?.id;
}
