// What a new job begins with: reinforcement learning on what it samples, or imitation of what other jobs recorded. Pure.
import { isMapping, type Spec } from "./spec";

// What is usual to fine-tune every weight; the default is that of reinforcement learning, a tenth of it.
const IMITATION_LEARNING_RATE = 1e-5;

export interface Beginning {
  title: string;
  help: string;
  isRecorded: boolean;
  begin: () => Spec;
}

export const BEGINNINGS: readonly Beginning[] = [
  {
    title: "Reinforcement learning",
    help: "Agents run tasks on engines of this job; it trains on what they sample.",
    isRecorded: false,
    begin: rolloutJob,
  },
  {
    title: "SFT on recorded trajectories",
    help: "Imitates the best sessions of other jobs, token for token; needs one machine that trains, no engines or agents.",
    isRecorded: true,
    begin: () => ({ name: "", ...recorded([]) }),
  },
];

export function beginningOf(isRecorded: boolean): Beginning {
  return BEGINNINGS.find((one) => one.isRecorded === isRecorded) as Beginning;
}

export function rolloutJob(): Spec {
  return { name: "", environment: { name: "calculator" }, train: { num_updates: 50 } };
}

/** Training on the sessions of a job, from the model that it began with. */
export function imitationOf(job: { id: string; name: string; spec: Record<string, unknown> }): Spec {
  const model = isMapping(job.spec.model) ? job.spec.model : {};
  const { source, max_model_len } = model;
  return { name: `${job.name} imitated`, model: { source, max_model_len }, ...recorded([job.id]) };
}

function recorded(jobs: readonly string[]): Spec {
  return {
    data: { source: "trajectories", jobs: [...jobs], min_reward: 1, num_epochs: 1 },
    algorithm: { name: "sft" },
    train: { learning_rate: IMITATION_LEARNING_RATE },
  };
}
