// Facts about a job's evaluations that several pages show. Pure.
import { isMapping } from "../../../values/guards";

/** Whether the spec names held-out tasks. Specs older than evaluations have no such section. */
export function hasHeldOutTasks(spec: Record<string, unknown> | undefined): boolean {
  return isMapping(spec?.evaluation) && typeof spec.evaluation.tasks === "string";
}

/** Every k that at least one evaluation estimates, in ascending order. */
export function estimatedKs(evaluations: readonly { pass_at_k: Record<string, number> }[]): number[] {
  const ks = new Set(evaluations.flatMap((one) => Object.keys(one.pass_at_k).map(Number)));
  return [...ks].sort((a, b) => a - b);
}
