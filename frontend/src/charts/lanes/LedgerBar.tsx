// A machine's time as one stacked bar: productive kinds first, then the rest, each with its fraction in words.
import { percent } from "../../ui/words/format";
import { kindOf } from "./kinds";
import { inOrder, productiveShare, type Share } from "./lanes";
import { fillId } from "./patterns";

const MIN_LABELLED = 0.005;

export function LedgerBar({ name, shares }: { name: string; shares: readonly Share[] }) {
  const ordered = inOrder(shares);
  const productive = productiveShare(ordered);
  let begin = 0;
  return (
    <div className="ledger-row">
      <span className="ledger-name" title={name}>
        {name}
      </span>
      <svg className="ledger-bar" width="100%" height="14" aria-hidden="true">
        {ordered.map(({ state, cause, share }) => {
          const { key, word } = kindOf(state, cause);
          const x = begin;
          begin += share;
          return (
            <rect
              key={`${state}:${cause}`}
              className={`ledger ${state}`}
              data-kind={key}
              x={`${x * 100}%`}
              width={`${share * 100}%`}
              height="100%"
              fill={`url(#${fillId(key)})`}
            >
              <title>{`${word}: ${percent(share)}`}</title>
            </rect>
          );
        })}
      </svg>
      <span className="ledger-words">
        <strong>{productive === null ? "" : `productive ${percent(productive)}`}</strong>
        {sharesText(ordered, true)}
        {sharesText(ordered, false)}
      </span>
    </div>
  );
}

/** " (serving 40%, training 20%)" if productive, otherwise " · syncing 16% · …". */
function sharesText(ordered: readonly Share[], isProductive: boolean): string {
  const wording = ordered
    .filter(({ share, state, cause }) => share >= MIN_LABELLED && kindOf(state, cause).isProductive === isProductive)
    .map(({ state, cause, share }) => `${kindOf(state, cause).word} ${percent(share)}`);
  if (wording.length === 0) return "";
  return isProductive ? ` (${wording.join(", ")})` : ` · ${wording.join(" · ")}`;
}
