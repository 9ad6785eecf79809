import { expect, it } from "vitest";
import { session } from "../wire/testing";
import { Forest, ROOT, SAMPLED } from "./Forest";
import { forestOf } from "./testing";
import { versionsDrawn } from "./versionsDrawn";

it("gives the range of versions in the forest, without unknown ones", () => {
  const forest = new Forest();
  forest.setSessions([session("s", 0)]);
  const node = { session: "s", mean_logprob: null, marks: 0, handover_at: [], prompt: 0, num_tokens: 4 };
  forest.addRow({ ...node, index: 0, parent: null, kind: ROOT, spans: [], turn: "0", prompt: 1 });
  expect(versionsDrawn(forest)).toBeNull();
  forest.addRow({ ...node, index: 1, parent: 0, kind: SAMPLED, spans: [0, 7, 2, 9], turn: "1" });
  forest.addRow({ ...node, index: 2, parent: 0, kind: SAMPLED, spans: [0, -1], turn: "2" });
  expect(versionsDrawn(forest)).toEqual([7, 9]);
});

it("gives a single version as both ends of the range", () => {
  expect(
    versionsDrawn(
      forestOf([
        [-1, ROOT, 3],
        [0, SAMPLED, 5],
      ]),
    ),
  ).toEqual([1, 1]);
});
