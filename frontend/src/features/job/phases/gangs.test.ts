import { expect, test } from "vitest";
import type { PhaseRow } from "../../../live/rows";
import { gangWords } from "./gangs";

function phase(machine: string, fence: number, gang_member: number | null): PhaseRow {
  return {
    id: `pha_${machine}_${fence}`,
    machine,
    role: "train",
    state: "active",
    reason: "",
    fence,
    desired_version: 0,
    served_version: null,
    engines: [],
    num_batches: 1,
    gang_member,
    leased_at: 0,
    ended_at: null,
  };
}

const alone = phase("zeta", 7, null);
const leader = phase("alpha", 4, 0);
const beta = phase("beta", 4, 1);
const delta = phase("delta", 4, 2);
const rows = [delta, alone, beta, leader, phase("beta", 3, 1)];

test("the leader lists the other members of its own gang in order", () => {
  expect(gangWords(leader, rows)).toBe("leads beta, delta");
});

test("the others name the leader", () => {
  expect(gangWords(beta, rows)).toBe("led by alpha");
});

test("a phase of one machine shows nothing, and unknown members are not invented", () => {
  expect(gangWords(alone, rows)).toBe("");
  expect(gangWords(phase("beta", 3, 1), rows)).toBe("led by another machine");
});
