// What the shares page says of a project's numbers. Pure.
import { decimal } from "../../ui/words/format";
import { limits, numberWithin } from "../../values/limits";
import type { Share } from "./queries";

/** Below this fraction of a machine, a project counts as having its entitlement. */
const SLIGHT = 0.5;

export type Balance = { wording: string; tone: "" | "lends" | "borrows" | "short" };

/** Whether a project borrows, lends, or is short of machines. */
export function balanceOf(share: Pick<Share, "num_borrowed" | "is_short">): Balance {
  const { num_borrowed, is_short } = share;
  if (num_borrowed >= SLIGHT) return { wording: `borrows ${machines(num_borrowed)}`, tone: "borrows" };
  if (num_borrowed <= -SLIGHT) {
    const missing = machines(-num_borrowed);
    return is_short
      ? { wording: `is short of ${missing}`, tone: "short" }
      : { wording: `lends ${missing}`, tone: "lends" };
  }
  return is_short ? { wording: "has its share, and could use more", tone: "" } : { wording: "has its share", tone: "" };
}

/** The number of machines, without a decimal that says nothing. */
export function machines(num: number): string {
  return Number.isInteger(num) ? decimal(num, 0) : decimal(num, 1);
}

export interface Drawn {
  owned: number;
  entitled: number;
}

type Counted = Pick<Share, "num_borrowed" | "entitled">;

/** Machines that roll out or train for the project: those of agents do not count in shares. */
export function sharedOf(share: Counted): number {
  return share.entitled + share.num_borrowed;
}

/** The bar of each project: fractions of the most that any project has or is entitled to. */
export function barOf(share: Counted, most: number): Drawn {
  if (most <= 0) return { owned: 0, entitled: 0 };
  return { owned: sharedOf(share) / most, entitled: share.entitled / most };
}

export function mostOf(shares: readonly Counted[]): number {
  return Math.max(0, ...shares.flatMap((share) => [sharedOf(share), share.entitled]));
}

/** A quota that a person typed; null: no limit; undefined if it is neither. */
export function quotaOf(text: string): number | null | undefined {
  return text.trim() === "" ? null : numberWithin(text, limits.Quota);
}
