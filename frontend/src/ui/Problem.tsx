// Shows an error message, with optional actions below it.
import type { ReactNode } from "react";
import { Icon } from "./Icon";

export function Problem({ error, children }: { error: unknown; children?: ReactNode }) {
  if (!error) return null;
  return (
    <div className="problem" role="alert">
      <Icon name="warning" />
      <div>
        <p>{error instanceof Error ? error.message : String(error)}</p>
        {children}
      </div>
    </div>
  );
}
