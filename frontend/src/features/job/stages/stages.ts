// Finds the current curriculum stage of a job from its spec and its stage-switch events. Pure.
import { isMapping } from "../../../values/guards";
import type { JobEvent } from "../events/eventWords";

export interface Stage {
  name: string;
  /** When the stage ends, in words. */
  until: string;
}

export interface Current {
  name: string;
  reason: string;
  /** Requested by a user but not started yet. */
  asked: string | null;
}

export function stagesOf(spec: Record<string, unknown> | undefined): Stage[] {
  const algorithm = isMapping(spec?.algorithm) ? spec.algorithm : {};
  const stages = Array.isArray(algorithm.stages) ? algorithm.stages.filter(isMapping) : [];
  return stages.map((stage, i) => ({ name: String(stage.name), until: untilText(stage, i === stages.length - 1) }));
}

/** Expects `events` newest first. A completed switch has `from` and `to`; a request has only `to`. */
export function currentStage(stages: readonly Stage[], events: readonly JobEvent[]): Current | null {
  const moves = events.filter((event) => event.kind === "job.stage");
  const switched = moves.find((event) => event.data.from !== undefined);
  const name = switched ? String(switched.data.to) : stages[0]?.name;
  if (name === undefined) return null;
  const newest = moves[0];
  const asked = newest && newest !== switched && newest.data.to !== name ? String(newest.data.to) : null;
  return { name, reason: switched?.reason ?? "", asked };
}

function untilText(stage: Readonly<Record<string, unknown>>, isLast: boolean): string {
  const rules: string[] = [];
  if (typeof stage.until_update === "number") rules.push(`${stage.until_update} updates are published`);
  if (typeof stage.until_metric === "string")
    rules.push(`${stage.until_metric} averages at least ${stage.at_least} over ${stage.window ?? 5} updates`);
  if (isLast) return "until the job ends";
  return rules.length ? `until ${rules.join(" or ")}` : "until switched manually";
}
