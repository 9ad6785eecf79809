import { expect, test } from "vitest";
import type { PhaseRow } from "../../../live/rows";
import { enginesServing, engineWords, lostEngines } from "./engines";

const phase = (served_version: number | null, ...engines: [number | null, string?][]) =>
  ({
    served_version,
    engines: engines.map(([version, problem], replica) => ({
      replica,
      served_version: version,
      problem: problem ?? "",
    })),
  }) as unknown as PhaseRow;

test("one engine, listed or not, serves the version of its phase", () => {
  expect(engineWords(phase(5))).toBe("serves version 5");
  expect(engineWords(phase(5, [5]))).toBe("serves version 5");
});

test("several engines are counted if they agree and named if they do not", () => {
  expect(engineWords(phase(5, [5], [5]))).toBe("2 engines serve version 5");
  expect(engineWords(phase(4, [4], [5]))).toBe("engine 0 serves version 4, engine 1 serves version 5");
  expect(engineWords(phase(4, [null, "engine 0 was killed by SIGKILL"], [4], [null]))).toBe(
    "engine 0 is down, engine 1 serves version 4, engine 2 starts",
  );
});

test("engines that serve the version are counted", () => {
  expect(enginesServing(phase(5, [5], [5]))).toBe("2");
  expect(enginesServing(phase(4, [4], [null, "engine 1 was killed by SIGKILL"]))).toBe("1 of 2");
});

test("it says why engines were lost", () => {
  expect(lostEngines(phase(4, [4], [null, "engine 1 was killed by SIGKILL"]))).toEqual([
    "engine 1 was killed by SIGKILL",
  ]);
});
