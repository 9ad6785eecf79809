// Follows the logs of phases one after another by byte offset while the component is mounted, in bounded memory.
import { useEffect, useRef, useState } from "react";
import { ApiProblem, api, bodyOf } from "../../../api/client";
import { useServerClock } from "../../../live/LiveProvider";
import type { PhaseRow } from "../../../live/rows";
import { utcClock } from "../../../ui/words/format";
import { gapSaid } from "../../../ui/words/logs";
import { following } from "./logPlan";

const POLL_MS = 1000;
const MAX_KEPT = 400_000; // characters
const AGAIN_MS = 20; // a long log is read without pauses

export interface LogState {
  text: string;
  streams: readonly string[];
  stream: string;
  numBytes: number;
  problem: string;
}

const NOTHING: LogState = { text: "", streams: [], stream: "", numBytes: 0, problem: "" };

/** `key` names what is shown: a new key starts over, while new phases under the same key are appended.
 * An empty `stream` means the first by name. */
export function useLog(key: string, phases: readonly PhaseRow[], stream: string): LogState {
  const [log, setLog] = useState<LogState>(NOTHING);
  const latest = useRef(phases);
  latest.current = phases;
  const now = useServerClock();
  const isReady = phases.length > 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key decides when to start over; phases are read from the ref.
  useEffect(() => {
    setLog(NOTHING);
    const [first] = latest.current;
    if (!isReady || !first) return;
    let isLooked = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let current = first;
    let offset = 0;
    const read = async () => {
      const part = await readPart(current.id, stream, offset);
      if (!isLooked) return;
      if (part instanceof ApiProblem) {
        setLog((log) => ({ ...log, problem: part.message }));
        timer = setTimeout(read, POLL_MS);
        return;
      }
      const heading = offset === 0 && part.text !== "" && latest.current.length > 1 ? headingOf(current) : "";
      const numNew = part.next_offset - offset;
      offset = part.next_offset;
      setLog((log) => ({
        text: (log.text + heading + gapSaid(part.num_missing_bytes) + part.text).slice(-MAX_KEPT),
        streams: part.streams.length > 0 ? part.streams : log.streams,
        stream: part.stream || log.stream,
        numBytes: log.numBytes + numNew,
        problem: "",
      }));
      const next = part.text === "" ? following(latest.current, current, now()) : undefined;
      if (next) {
        current = next;
        offset = 0;
      }
      timer = setTimeout(read, next || part.text !== "" ? AGAIN_MS : POLL_MS);
    };
    void read();
    return () => {
      isLooked = false;
      clearTimeout(timer);
    };
  }, [key, stream, isReady]);
  return log;
}

function headingOf(phase: PhaseRow): string {
  return `── ${phase.role} on ${phase.machine}, ${utcClock(phase.leased_at)}, fence ${phase.fence} ──\n`;
}

async function readPart(phaseId: string, stream: string, offset: number) {
  const query = stream ? { offset, stream } : { offset };
  try {
    return await bodyOf(api.GET("/api/v1/phases/{phase_id}/logs", { params: { path: { phase_id: phaseId }, query } }));
  } catch (error) {
    if (error instanceof ApiProblem) return error;
    throw error;
  }
}
