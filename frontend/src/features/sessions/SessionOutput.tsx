// What a session's agent printed, followed while the session runs.
import { ApiProblem, type Schemas } from "../../api/client";
import { Problem } from "../../ui/Problem";
import { bytes } from "../../ui/words/format";
import { nothingText } from "./outputWords";
import { useSessionLog } from "./useSessionLog";

interface Props {
  session: Pick<Schemas["SessionDetailOutput"], "id" | "state" | "closed_at">;
  /** The job's spec, once it is known. */
  spec: { environment?: { name?: string; session_log_bytes?: number } } | undefined;
}

export function SessionOutput({ session, spec }: Props) {
  const log = useSessionLog(session);
  const text = log.data?.text ?? "";
  return (
    <section className="card" aria-label="Output" data-testid="session-output">
      <div className="card-head">
        <h2>Output</h2>
        <span className="muted">what the agent's program and its environment printed</span>
        {text ? <span className="muted end">{bytes(log.data?.numBytes ?? 0)}</span> : null}
      </div>
      {log.error && !(log.error instanceof ApiProblem && log.error.status === 410) ? (
        <Problem error={log.error} />
      ) : text ? (
        <pre
          className="log session-log"
          // A region that scrolls must be reachable by keyboard.
          // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
          tabIndex={0}
          role="log"
          aria-label="Output of the session"
          aria-live="off"
        >
          {text}
        </pre>
      ) : (
        <p className="muted">
          {log.isPending
            ? "Reading …"
            : log.error
              ? `${log.error.message}.`
              : nothingText(session.state, spec?.environment)}
        </p>
      )}
    </section>
  );
}
