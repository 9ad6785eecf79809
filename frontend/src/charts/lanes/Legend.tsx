import { Swatch } from "./KindPatterns";
import { KINDS, type Kind } from "./kinds";

/** Explains the colours and patterns of lanes and ledgers, in the order in which they are drawn. */
export function Legend() {
  return (
    <details className="causes">
      <summary>Colours and patterns</summary>
      <div className="legend">
        <KindList title="Productive" kinds={KINDS.filter((kind) => kind.isProductive)} />
        <KindList title="Not productive" kinds={KINDS.filter((kind) => !kind.isProductive && kind.cause === "")} />
        <KindList title="Idle causes" kinds={KINDS.filter((kind) => !kind.isProductive && kind.cause !== "")} />
      </div>
    </details>
  );
}

function KindList({ title, kinds }: { title: string; kinds: readonly Kind[] }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>
        {kinds.map(({ key, word, meaning }) => (
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

/** The kinds that are drawn, each with its swatch. */
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
