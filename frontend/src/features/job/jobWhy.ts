// Why a job is not running: the platform's reason, or who requested it and why. Pure.
import type { EventRow, JobRow, PhaseRow } from "../../live/rows";
import { authorText } from "./events/eventWords";

export interface Why {
  title: string;
  text: string;
  isBad: boolean;
}

const STOPPED_BY_REQUEST: Partial<Record<JobRow["state"], string>> = {
  pausing: "Being paused",
  paused: "Paused",
  cancelling: "Being cancelled",
  cancelled: "Cancelled",
};

export function whyOf(job: JobRow, events: Iterable<EventRow>): Why | null {
  const stopped = STOPPED_BY_REQUEST[job.state];
  if (stopped) {
    const request = newestRequest(events, job.desired);
    if (job.desired === "run") return resumedWhy(request);
    const isBad = job.paused_by === "platform";
    const by = isBad ? " by the platform" : request ? ` by ${authorText(request.author)}` : "";
    const reason = request?.reason || (isBad ? job.state_reason : "");
    return { title: `${stopped}${by}:`, text: reason || "no reason was given", isBad };
  }
  return job.waiting_reason ? { title: "Waiting:", text: job.waiting_reason, isBad: false } : null;
}

/** Why a job that is asked to run has stopped: it arrives at the pause before it goes on. */
function resumedWhy(request: EventRow | undefined): Why {
  const title = request ? `Resumed by ${authorText(request.author)}:` : "Resumed:";
  const reason = request?.reason ? `${request.reason}; ` : "";
  return { title, text: `${reason}it goes on as soon as it has paused`, isBad: false };
}

/** The phase that failed last: its log is the most useful. */
export function failedPhase(phases: Iterable<PhaseRow>): PhaseRow | undefined {
  return [...phases]
    .filter((phase) => phase.state === "failed")
    .sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0))
    .at(0);
}

function newestRequest(events: Iterable<EventRow>, desired: JobRow["desired"]): EventRow | undefined {
  return [...events]
    .filter((event) => event.kind === "job.desired" && event.data.to === desired)
    .sort((a, b) => b.id - a.id)
    .at(0);
}
