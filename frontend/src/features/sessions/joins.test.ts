import { expect, it } from "vitest";
import { joinsFigure, joinsText } from "./joins";

it("says how many turns joined cleanly, and why others did not", () => {
  const joins = { num_clean: 14, num_turns: 15, causes: { system: 1 }, num_conversations: 1 };
  expect(joinsFigure(joins)).toBe("14 of 15");
  expect(joinsText(joins)).toBe("1 fork: the system prompt changed");
});

it("puts the most frequent cause first, and does not call a realigned turn a fork", () => {
  const causes = { template: 1, repeat: 2, history: 3 };
  expect(joinsText({ num_clean: 0, num_turns: 6, causes, num_conversations: 1 })).toBe(
    "3 forks: earlier messages were edited, dropped or branched; 2 forks: the same request was sent again; " +
      "1 realigned turn: the template rendered the history differently",
  );
});

it("claims nothing where no turn could join, or where the trajectories were deleted", () => {
  const none = { num_clean: 0, num_turns: 0, causes: {}, num_conversations: 1 };
  expect([joinsFigure(none), joinsText(none)]).toEqual(["–", "no turn after the first yet"]);
  expect([joinsFigure(null), joinsText(null)]).toEqual(["–", ""]);
  expect(joinsText({ ...none, num_clean: 3, num_turns: 3 })).toBe("every turn continued its conversation");
});

it("counts conversations apart, such as a request for a title", () => {
  const two = { num_clean: 3, num_turns: 3, causes: {}, num_conversations: 2 };
  expect(joinsText(two)).toBe("2 conversations; every turn continued its conversation");
  expect(joinsText({ ...two, num_clean: 0, num_turns: 0 })).toBe("2 conversations; no turn after their first yet");
});
