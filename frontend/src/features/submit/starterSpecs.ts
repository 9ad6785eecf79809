// Starter specs for a new job: reinforcement learning on its own samples, or imitation of other jobs' sessions. Pure.
import { isMapping } from "../../values/guards";
import type { Spec } from "./spec";

// A usual value for full fine-tuning. The spec's default suits reinforcement learning and is a tenth of it.
const IMITATION_LEARNING_RATE = 1e-5;

export interface StarterSpec {
  title: string;
  help: string;
  isOffline: boolean;
  begin: () => Spec;
}

const ROLLOUT: StarterSpec = {
  title: "Reinforcement learning",
  help: "Agents run tasks on this job's engines, and the job trains on their answers.",
  isOffline: false,
  begin: rolloutJob,
};
const OFFLINE: StarterSpec = {
  title: "SFT on an offline dataset",
  help: "Imitates the best sessions of other jobs, token for token. Needs one training machine and no engines or agents.",
  isOffline: true,
  begin: () => ({ name: "", ...offline([]) }),
};
export const STARTER_SPECS: readonly StarterSpec[] = [ROLLOUT, OFFLINE];

export function starterSpecOf(isOffline: boolean): StarterSpec {
  return isOffline ? OFFLINE : ROLLOUT;
}

export function rolloutJob(): Spec {
  return { name: "", environment: { name: "calculator" }, train: { num_updates: 50 } };
}

/** Trains on the sessions of a job, starting from that job's initial model. */
export function imitationOf(job: { id: string; name: string; spec: Record<string, unknown> }): Spec {
  const model = isMapping(job.spec.model) ? job.spec.model : {};
  const { source, max_model_len } = model;
  return { name: `${job.name} imitated`, model: { source, max_model_len }, ...offline([job.id]) };
}

function offline(jobs: readonly string[]): Spec {
  return {
    data: { source: "trajectories", jobs: [...jobs], min_reward: 1, num_epochs: 1 },
    algorithm: { name: "sft" },
    train: { learning_rate: IMITATION_LEARNING_RATE },
  };
}
