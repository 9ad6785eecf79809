// Says which versions the engines of a rollout phase serve. Pure: a row in, a few words out.
import type { PhaseRow } from "../../../live/rows";
import { integer, plural } from "../../../ui/words/format";

/** "serves version 5"; of several engines "2 engines serve version 5" or "engine 0 serves version 4, engine 1 is down". */
export function engineWords({ engines, served_version }: PhaseRow): string {
  if (engines.length < 2) return `serves version ${integer(served_version)}`;
  const versions = new Set(engines.map((engine) => engine.served_version));
  if (versions.size === 1 && !versions.has(null)) {
    return `${plural(engines.length, "engine")} serve version ${integer(served_version)}`;
  }
  return engines.map((engine) => `engine ${engine.replica} ${work(engine)}`).join(", ");
}

/** How many of several engines serve the phase's version: "8", or "7 of 8". */
export function enginesServing({ engines, served_version }: PhaseRow): string {
  const serving = engines.filter((engine) => engine.served_version === served_version).length;
  return serving === engines.length ? integer(serving) : `${integer(serving)} of ${integer(engines.length)}`;
}

function work({ served_version, problem }: PhaseRow["engines"][number]): string {
  if (served_version !== null) return `serves version ${integer(served_version)}`;
  return problem ? "is down" : "starts";
}

/** Why engines are down, one sentence each. */
export function lostEngines({ engines }: PhaseRow): string[] {
  return engines.flatMap((engine) => (engine.problem ? [engine.problem] : []));
}
