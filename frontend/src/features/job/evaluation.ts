// Helpers for the pages that show a job's evaluations. Pure.

/** Whether the spec names held-out tasks. Specs older than evaluations have no such section. */
export function hasHeldOutTasks(spec: Record<string, unknown> | undefined): boolean {
  const section = spec?.evaluation as { tasks?: unknown } | undefined;
  return typeof section?.tasks === "string";
}

/** Every k that any of the evaluations estimates, ascending. */
export function estimatedKs(evaluations: readonly { pass_at_k: Record<string, number> }[]): number[] {
  const ks = new Set(evaluations.flatMap((one) => Object.keys(one.pass_at_k).map(Number)));
  return [...ks].sort((a, b) => a - b);
}
