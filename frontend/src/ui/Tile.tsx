import type { ReactNode } from "react";

interface Props {
  title: string;
  figure: ReactNode;
  testId?: string;
  children?: ReactNode;
}

/** A figure with its title above and details below. */
export function Tile({ title, figure, testId, children }: Props) {
  return (
    <div className="card tile">
      <h2>{title}</h2>
      <p className="tile-figure" data-testid={testId}>
        {figure}
      </p>
      <div className="muted">{children}</div>
    </div>
  );
}
