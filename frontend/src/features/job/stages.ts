// Which stage of its curriculum a job is in: by its spec, and by the switches that its events tell of. Pure.
import { isMapping } from "../submit/spec";
import type { JobEvent } from "./eventWords";

export interface Stage {
  name: string;
  /** How it ends, in words. */
  until: string;
}

export interface Current {
  name: string;
  reason: string;
  /** Asked for by a person, and not begun yet. */
  asked: string | null;
}

export function stagesOf(spec: Record<string, unknown> | undefined): Stage[] {
  const algorithm = isMapping(spec?.algorithm) ? spec.algorithm : {};
  const stages = Array.isArray(algorithm.stages) ? algorithm.stages.filter(isMapping) : [];
  return stages.map((stage, i) => ({ name: String(stage.name), until: untilSaid(stage, i === stages.length - 1) }));
}

/** `events` newest first. A switch that happened says where from; a request says only where to. */
export function currentStage(stages: readonly Stage[], events: readonly JobEvent[]): Current | null {
  const moves = events.filter((event) => event.kind === "job.stage");
  const switched = moves.find((event) => event.data.from !== undefined);
  const name = switched ? String(switched.data.to) : stages[0]?.name;
  if (name === undefined) return null;
  const newest = moves[0];
  const asked = newest && newest !== switched && newest.data.to !== name ? String(newest.data.to) : null;
  return { name, reason: switched?.reason ?? "", asked };
}

function untilSaid(stage: Readonly<Record<string, unknown>>, isLast: boolean): string {
  const rules: string[] = [];
  if (typeof stage.until_update === "number") rules.push(`${stage.until_update} updates are published`);
  if (typeof stage.until_metric === "string")
    rules.push(`${stage.until_metric} is ${stage.at_least} over ${stage.window ?? 5} updates`);
  if (isLast) return "to the end of the job";
  return rules.length ? `until ${rules.join(" or ")}` : "until somebody switches it";
}
