import { expect, test } from "vitest";
import { deviceProblems, hardwareText, machinesFound, quarantineText } from "./hardware";

test("identical accelerators are counted", () => {
  const cards = [...new Array(8).fill("NVIDIA H200"), "NVIDIA L4"];
  expect(hardwareText({ num_cores: 96, memory_bytes: 2 * 1024 ** 4, accelerators: cards })).toBe(
    "96 cores, 2.0 TiB, 8\u00a0× NVIDIA H200, NVIDIA L4",
  );
  expect(hardwareText({ num_cores: 1 })).toBe("1 core");
  expect(hardwareText({})).toBe("–");
});

const QUARANTINE = { since: 1000, until: 31_000, reason: "2 rollout phases failed on it", num_quarantines: 1 };

test("a machine matches if every search word is found in any of its fields", () => {
  const machine = (name: string, tags: string[], open_state: string, is_healthy = true) => {
    const labels = [`host=${name}-host`];
    const health = is_healthy ? "healthy" : "down";
    return { name, tags, labels, role: null, open_state, is_healthy, health } as const;
  };
  const machines = [
    machine("gpu-01", ["rollout", "rack=3"], "serving"),
    machine("gpu-02", ["train", "rack=3"], "idle"),
    machine("cpu-01", ["agent"], "idle", false),
  ];
  const found = (search: string) => machinesFound(machines, search).map(({ name }) => name);
  expect(found("")).toEqual(["gpu-01", "gpu-02", "cpu-01"]);
  expect(found("RACK=3 idle")).toEqual(["gpu-02"]);
  expect(found("down")).toEqual(["cpu-01"]);
  expect(found("host=gpu-02")).toEqual(["gpu-02"]);
  expect(found("healthy rollout")).toEqual(["gpu-01"]);
  expect(found("nothing")).toEqual([]);
});

test("a cordoned device is named with its model and why", () => {
  const device = { id: "GPU-1", kind: "cuda", name: "NVIDIA H100", memory_bytes: 1, numa: null, cores: [] };
  const capabilities = { devices: [device], device_problems: { "GPU-1": "the driver reports: GPU is lost" } };
  expect(deviceProblems({ name: "alpha", capabilities })).toEqual([
    {
      id: "GPU-1",
      problemText: "NVIDIA H100 GPU-1 is cordoned: the driver reports: GPU is lost.",
      command: 'seamlessflow machines release alpha --device GPU-1 --reason "…"',
    },
  ]);
  expect(deviceProblems({ name: "alpha", capabilities: {} })).toEqual([]);
});

test("a quarantine says until when, why, and whether the machine is being tried out", () => {
  expect(quarantineText({ quarantine: null, role: null }, 0)).toBeNull();
  const row = { quarantine: QUARANTINE, role: null };
  expect(quarantineText(row, 2000)).toMatch(/^Gets no work until .*: 2 rollout phases failed on it\.$/);
  expect(quarantineText(row, 40_000)).toBe("The next phase tries it out: 2 rollout phases failed on it.");
  const again = { quarantine: { ...QUARANTINE, num_quarantines: 3 }, role: "rollout" as const };
  expect(quarantineText(again, 40_000)).toBe(
    "A phase is trying it out (number 3 in a row): 2 rollout phases failed on it.",
  );
});
