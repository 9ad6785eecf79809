// Reads a session's log, again and again while the session runs and shortly after its end, when its last lines arrive.
import { useQuery } from "@tanstack/react-query";
import { api, bodyOf, type Schemas } from "../../api/client";
import { gapText } from "../../ui/words/logs";

const EVERY_MS = 2000;
const ARRIVING_MS = 15_000;

type Session = Pick<Schemas["SessionDetailOutput"], "id" | "state" | "closed_at">;

export function useSessionLog(session: Session) {
  return useQuery({
    queryKey: ["session-log", session.id],
    queryFn: () => wholeLog(session.id),
    refetchInterval: () => (mayGrow(session) ? EVERY_MS : false),
  });
}

function mayGrow({ state, closed_at }: Session): boolean {
  return state === "open" || (closed_at !== null && Date.now() - Date.parse(closed_at) < ARRIVING_MS);
}

/** A log is small: its head and its tail. */
async function wholeLog(sessionId: string) {
  let text = "";
  let offset = 0;
  for (;;) {
    const part = await bodyOf(
      api.GET("/api/v1/sessions/{session_id}/logs", {
        params: { path: { session_id: sessionId }, query: { offset } },
      }),
    );
    text += gapText(part.num_missing_bytes) + part.text;
    offset = part.next_offset;
    if (!part.truncated || part.text === "") return { text, numBytes: part.end };
  }
}
