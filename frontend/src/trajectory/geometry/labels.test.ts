import { expect, test } from "vitest";
import { labelSize, labelWithin, TEXT_FROM_PX } from "./labels";

const SIZE = labelSize(26);

test("a group of 25 nodes at 1280 pixels, with 14 of them for a token, shows characters", () => {
  expect(["7", "+", "·"].map((label) => labelWithin(label, 14.3, SIZE))).toEqual(["7", "+", "·"]);
  expect(labelWithin("<|im_start|>", 14.3, SIZE)).toBe("");
  expect(labelWithin("7", TEXT_FROM_PX, labelSize(15))).toBe("7");
});

test("a wide box shows the beginning of a text that does not fit", () => {
  expect(labelWithin("<|im_start|>", 40, SIZE)).toBe("<|i…");
  expect(labelWithin("then", 40, SIZE)).toBe("then");
});
