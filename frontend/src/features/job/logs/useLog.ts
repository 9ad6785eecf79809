// Follows the logs of phases one after another by byte offset while the component is mounted, in bounded memory.
//
// One query whose data grows: each run reads on from where the last one ended. An infinite query would keep every part
// as a page, and its refetch would read all of them again each second.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, bodyOf } from "../../../api/client";
import { useServerClock } from "../../../live/LiveProvider";
import type { PhaseRow } from "../../../live/rows";
import { utcClock } from "../../../ui/words/format";
import { gapText } from "../../../ui/words/logs";
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

interface Reading extends Omit<LogState, "problem"> {
  /** The phase that is read, and the next byte of its log. */
  phase: PhaseRow | undefined;
  offset: number;
  mayHaveMore: boolean;
}

const NOTHING: Reading = {
  text: "",
  streams: [],
  stream: "",
  numBytes: 0,
  phase: undefined,
  offset: 0,
  mayHaveMore: true,
};

/** `key` names the log: a new key starts over, while new phases under the same key are appended.
 * An empty `stream` means the first by name. */
export function useLog(key: string, phases: readonly PhaseRow[], stream: string): LogState {
  const client = useQueryClient();
  const latest = useRef(phases);
  latest.current = phases;
  const now = useServerClock();
  const queryKey = ["log", key, stream];
  const { data = NOTHING, error } = useQuery({
    queryKey,
    queryFn: () => readOn(client.getQueryData<Reading>(queryKey) ?? NOTHING, latest.current, stream, now()),
    enabled: phases.length > 0,
    refetchInterval: ({ state }) => (state.data?.mayHaveMore && !state.error ? AGAIN_MS : POLL_MS),
    staleTime: 0,
    retry: false, // the next poll tries again
    structuralSharing: false,
  });
  const { text, streams, numBytes } = data;
  return { text, streams, stream: data.stream, numBytes, problem: error?.message ?? "" };
}

async function readOn(
  { text, streams, stream: known, numBytes, phase, offset }: Reading,
  phases: readonly PhaseRow[],
  stream: string,
  now: number,
): Promise<Reading> {
  const current = phase ?? phases[0];
  if (!current) return NOTHING;
  const part = await readPart(current.id, stream, offset);
  const heading = offset === 0 && part.text !== "" && phases.length > 1 ? headingOf(current) : "";
  const next = part.truncated ? undefined : following(phases, current, now);
  return {
    text: (text + heading + gapText(part.num_missing_bytes) + part.text).slice(-MAX_KEPT),
    streams: part.streams.length > 0 ? part.streams : streams,
    stream: part.stream || known,
    numBytes: numBytes + part.next_offset - offset,
    phase: next ?? current,
    offset: next ? 0 : part.next_offset,
    mayHaveMore: next !== undefined || part.truncated,
  };
}

function headingOf(phase: PhaseRow): string {
  return `── ${phase.role} on ${phase.machine}, ${utcClock(phase.leased_at)}, fence ${phase.fence} ──\n`;
}

function readPart(phaseId: string, stream: string, offset: number) {
  const query = stream ? { offset, stream } : { offset };
  return bodyOf(api.GET("/api/v1/phases/{phase_id}/logs", { params: { path: { phase_id: phaseId }, query } }));
}
