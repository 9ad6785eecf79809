// Disk usage by project and kind, as last measured by the background process.
import { Link } from "react-router";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { bytes, moment, NONE, percent } from "../../ui/words/format";
import { type Usage, useUsages } from "./queries";
import { sharesOf, USAGE_KINDS } from "./usage";

export function UsageTable({ chosen }: { chosen: string }) {
  const usages = useUsages();
  if (usages.error) return <Problem error={usages.error} />;
  if (!usages.data) return <Loading what="Loading disk usage" />;
  const rows = usages.data.results;
  const measured = rows.flatMap(({ measured_at }) => (measured_at ? [Date.parse(measured_at)] : []));
  return (
    <section className="card flush" aria-labelledby="disk-use">
      <div className="card-head">
        <h2 id="disk-use">Disk usage</h2>
        <span className="muted">
          {measured.length > 0 ? `measured ${moment(Math.max(...measured))}` : "not measured yet"}
        </span>
      </div>
      <div className="wide">
        <table className="table roomy" data-testid="usage">
          <thead>
            <tr>
              <th>Project</th>
              <th className="number">Total</th>
              <th className="usage-cell">By kind</th>
              {USAGE_KINDS.map(({ kind, word, colour }) => (
                <th key={kind} className="number">
                  <span className={`swatch series-${colour}`} aria-hidden="true" /> {word}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((usage) => (
              <UsageRow key={usage.project} usage={usage} isChosen={usage.project === chosen && rows.length > 1} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function UsageRow({ usage, isChosen }: { usage: Usage; isChosen: boolean }) {
  const shares = sharesOf(usage);
  const drawn = shares.filter(({ share }) => share > 0);
  return (
    <tr>
      <td className="nowrap">
        {isChosen ? (
          <strong>{usage.project}</strong>
        ) : (
          <Link to={`/storage?project=${usage.project}`}>{usage.project}</Link>
        )}
      </td>
      <td className="number nowrap">{bytes(usage.num_bytes)}</td>
      <td className="usage-cell">
        <div className="usage-bar" aria-hidden="true">
          {drawn.map(({ kind, word, colour, share }) => (
            <span
              key={kind}
              className={`series-${colour}`}
              style={{ flexGrow: share }}
              title={`${word}: ${percent(share)}`}
            />
          ))}
        </div>
      </td>
      {shares.map(({ kind, numBytes }) => (
        <td key={kind} className="number nowrap">
          {numBytes > 0 ? bytes(numBytes) : NONE}
        </td>
      ))}
    </tr>
  );
}
