import { expect, test } from "vitest";
import { hardwareSaid, machinesFound } from "./hardware";

test("cards of one kind are counted", () => {
  const cards = [...new Array(8).fill("NVIDIA H200"), "NVIDIA L4"];
  expect(hardwareSaid({ num_cores: 96, memory_bytes: 2 * 1024 ** 4, accelerators: cards })).toBe(
    "96 cores, 2.0 TiB, 8\u00a0× NVIDIA H200, NVIDIA L4",
  );
  expect(hardwareSaid({ num_cores: 1 })).toBe("1 core");
  expect(hardwareSaid({})).toBe("–");
});

test("every word of a search must be found, in whatever place", () => {
  const machine = (name: string, tags: string[], open_state: string, is_healthy = true) =>
    ({ name, tags, role: null, open_state, is_healthy }) as const;
  const machines = [
    machine("gpu-01", ["rollout", "rack=3"], "serving"),
    machine("gpu-02", ["train", "rack=3"], "idle"),
    machine("cpu-01", ["agent"], "idle", false),
  ];
  const found = (search: string) => machinesFound(machines, search).map(({ name }) => name);
  expect(found("")).toEqual(["gpu-01", "gpu-02", "cpu-01"]);
  expect(found("RACK=3 idle")).toEqual(["gpu-02"]);
  expect(found("down")).toEqual(["cpu-01"]);
  expect(found("nothing")).toEqual([]);
});
