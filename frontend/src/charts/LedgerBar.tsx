// A machine's time as one bar of shares that adds up to the whole, with the shares in words.
import { percent } from "../ui/format";
import { describeState, type Share } from "./lanes";

const MIN_LABELLED = 0.005;

export function LedgerBar({ name, shares }: { name: string; shares: readonly Share[] }) {
  return (
    <div className="ledger-row">
      <span className="ledger-name" title={name}>
        {name}
      </span>
      <div className="ledger-bar" aria-hidden="true">
        {shares.map(({ state, cause, share }) => (
          <span
            key={`${state}:${cause}`}
            className={`ledger ${state}`}
            style={{ width: `${share * 100}%` }}
            title={`${describeState(state, cause)}: ${percent(share)}`}
          />
        ))}
      </div>
      <span className="ledger-words">
        {shares
          .filter(({ share }) => share >= MIN_LABELLED)
          .map(({ state, cause, share }) => `${describeState(state, cause)} ${percent(share)}`)
          .join(" · ")}
      </span>
    </div>
  );
}
