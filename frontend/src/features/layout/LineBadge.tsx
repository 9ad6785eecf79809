// Shows whether the page is current, or how many seconds it is behind.

import type { LineState } from "../../live/LiveClient";
import { useLine } from "../../live/LiveProvider";

const WORDS: Record<LineState, string> = {
  connecting: "connecting",
  live: "live",
  held_up: "live updates are delayed",
  silent: "no updates received",
  lost: "connection lost",
  signed_out: "signed out",
};

export function LineBadge() {
  const line = useLine();
  const isCurrent = line.state === "live";
  // The running count of seconds is hidden from screen readers, which announce only changes of state.
  return (
    <div className={isCurrent ? "line current" : "line"}>
      <span className="line-dot" aria-hidden="true" />
      <span role="status" data-testid="line">
        {line.state === "signed_out" ? <a href="/signin">{WORDS.signed_out}: sign in again</a> : WORDS[line.state]}
      </span>
      {isCurrent || line.state === "connecting" || line.state === "signed_out" ? null : (
        <span aria-hidden="true" data-testid="behind">
          behind by {line.behindS} s
        </span>
      )}
    </div>
  );
}
