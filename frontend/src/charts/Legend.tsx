import { Swatch } from "./KindPatterns";
import { KINDS } from "./kinds";

/** What the colours and patterns of lanes and ledgers mean, in the order in which they are drawn. */
export function Legend() {
  return (
    <details className="causes">
      <summary>What the colours and patterns mean</summary>
      <div className="legend">
        <KindList title="Productive" isProductive={true} />
        <KindList title="Not productive" isProductive={false} />
      </div>
    </details>
  );
}

function KindList({ title, isProductive }: { title: string; isProductive: boolean }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>
        {KINDS.filter((kind) => kind.isProductive === isProductive).map(({ key, word, meaning }) => (
          <div key={key}>
            <dt>
              <Swatch kind={key} /> {word}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** The kinds that are drawn, each beside its sample. */
export function DrawnKinds({ shown }: { shown: ReadonlySet<string> }) {
  return (
    <div className="legend-row">
      {KINDS.filter(({ key }) => shown.has(key)).map(({ key, word, meaning }) => (
        <span key={key} title={meaning}>
          <Swatch kind={key} /> {word}
        </span>
      ))}
    </div>
  );
}
