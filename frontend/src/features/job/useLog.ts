// Follows the log of one phase and stream by byte offset, as long as somebody looks. What is kept is bounded.
import { useEffect, useState } from "react";
import { ApiProblem, api, bodyOf } from "../../api/client";

const POLL_MS = 1000;
const MAX_KEPT = 400_000; // characters
const AGAIN_MS = 20; // a long log is read on without a pause

export interface LogState {
  text: string;
  streams: readonly string[];
  stream: string;
  offset: number;
  problem: string;
}

const NOTHING: LogState = { text: "", streams: [], stream: "", offset: 0, problem: "" };

/** `stream` empty: the first by name. */
export function useLog(phaseId: string | undefined, stream: string): LogState {
  const [log, setLog] = useState<LogState>(NOTHING);
  useEffect(() => {
    setLog(NOTHING);
    if (!phaseId) return;
    let isLooked = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let offset = 0;
    const read = async () => {
      const part = await readPart(phaseId, stream, offset);
      if (!isLooked) return;
      if (part instanceof ApiProblem) setLog((log) => ({ ...log, problem: part.message }));
      else {
        offset = part.next_offset;
        setLog((log) => ({
          text: (log.text + part.text).slice(-MAX_KEPT),
          streams: part.streams,
          stream: part.stream,
          offset: part.next_offset,
          problem: "",
        }));
      }
      const isMore = !(part instanceof ApiProblem) && part.text !== "";
      timer = setTimeout(read, isMore ? AGAIN_MS : POLL_MS);
    };
    void read();
    return () => {
      isLooked = false;
      clearTimeout(timer);
    };
  }, [phaseId, stream]);
  return log;
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
