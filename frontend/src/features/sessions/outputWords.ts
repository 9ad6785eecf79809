// Says why a session's output is empty, and how a failed session's reason is introduced. Pure.

interface Environment {
  name?: string;
  session_log_bytes?: number;
}

export function nothingText(state: string, environment: Environment | undefined): string {
  if (environment?.name === "external")
    return "The agents of this job run outside the platform, which does not see their output.";
  if (environment?.session_log_bytes === 0)
    return "The job keeps no output of its sessions: environment.session_log_bytes is 0.";
  return state === "open"
    ? "Nothing has been printed yet. What the agent prints to standard output and standard error appears here while it runs."
    : "This session printed nothing.";
}

/** The last line that a failed session printed, unless its reason ends with it. */
export function lastLineText(session: { reason: string; last_line: string | null }): string | undefined {
  const line = session.last_line;
  return line && !session.reason.trimEnd().endsWith(line) ? line : undefined;
}
