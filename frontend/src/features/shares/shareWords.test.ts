import { expect, it } from "vitest";
import { balanceOf, barOf, mostOf, quotaOf } from "./shareWords";

it("says who borrows, who lends and who is short", () => {
  expect(balanceOf({ num_borrowed: 2, is_short: true }).wording).toBe("borrows 2");
  expect(balanceOf({ num_borrowed: -1.5, is_short: false }).wording).toBe("lends 1.5");
  expect(balanceOf({ num_borrowed: -1.5, is_short: true }).wording).toBe("is short of 1.5");
  expect(balanceOf({ num_borrowed: 0.3, is_short: false }).wording).toBe("has its share");
  expect(balanceOf({ num_borrowed: 0, is_short: true }).wording).toBe("has its share, and could use more");
});

it("draws bars as fractions of the largest number", () => {
  const shares = [
    { num_borrowed: -1, entitled: 2 },
    { num_borrowed: 4, entitled: 0 },
  ];
  expect(mostOf(shares)).toBe(4);
  expect(barOf({ num_borrowed: -1, entitled: 2 }, 4)).toEqual({ owned: 0.25, entitled: 0.5 });
  expect(barOf({ num_borrowed: 0, entitled: 0 }, mostOf([]))).toEqual({ owned: 0, entitled: 0 });
});

it("reads quotas, and an empty one as no limit", () => {
  expect(quotaOf(" ")).toBeNull();
  expect(quotaOf("3")).toBe(3);
  expect([quotaOf("0"), quotaOf("1.5"), quotaOf("many")]).toEqual([undefined, undefined, undefined]);
});
