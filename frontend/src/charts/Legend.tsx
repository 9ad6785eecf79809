import { CAUSES, describeState, STATES } from "./lanes";

/** What the colours of lanes and ledgers mean, and what is behind each cause of idleness. */
export function Legend() {
  return (
    <>
      <div className="legend">
        {STATES.map((state) => (
          <span key={state}>
            <span className={`swatch ledger ${state}`} aria-hidden="true" />
            {describeState(state, "")}
          </span>
        ))}
      </div>
      <details className="causes">
        <summary>Why machines idle</summary>
        <dl>
          {Object.values(CAUSES).map(({ word, meaning }) => (
            <div key={word}>
              <dt>{word}</dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </details>
    </>
  );
}
