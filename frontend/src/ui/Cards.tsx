// Cards of a page. An error in one of them leaves the others as they are.
import { Children, type ReactNode } from "react";
import { ErrorBoundary } from "./ErrorBoundary";

/** Wraps each child in a boundary of its own. `className` lays them out. */
export function Cards({ className = "stack", children }: { className?: string; children: ReactNode }) {
  return (
    <div className={className}>
      {Children.map(children, (child) => (child ? <ErrorBoundary isCard>{child}</ErrorBoundary> : null))}
    </div>
  );
}

interface CardProps {
  title: ReactNode;
  note?: ReactNode;
  /** At the right end of the heading. */
  end?: ReactNode;
  className?: string;
  testId?: string;
  children: ReactNode;
}

export function Card({ title, note, end, className = "", testId, children }: CardProps) {
  return (
    <section className={`card ${className}`} data-testid={testId}>
      <div className="card-head">
        {typeof title === "string" ? <h2>{title}</h2> : title}
        {note ? <span className="muted">{note}</span> : null}
        {end ? <span className="end">{end}</span> : null}
      </div>
      {children}
    </section>
  );
}
