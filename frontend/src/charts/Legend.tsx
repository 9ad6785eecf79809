import { describeState, STATES } from "./lanes";

/** What the colours of lanes and ledgers mean. */
export function Legend() {
  return (
    <div className="legend">
      {STATES.map((state) => (
        <span key={state}>
          <span className={`swatch ledger ${state}`} aria-hidden="true" />
          {describeState(state, "")}
        </span>
      ))}
    </div>
  );
}
