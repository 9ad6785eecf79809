import { expect, test } from "vitest";
import { daysFault, scopesFor, stateOf } from "./tokenWords";

test("a token is revoked, expired or active", () => {
  const at = "2026-11-23T10:00:00Z";
  const now = Date.parse(at);
  expect(stateOf({ revoked_at: at, expires_at: null }, now)).toBe("revoked");
  expect(stateOf({ revoked_at: null, expires_at: at }, now)).toBe("expired");
  expect(stateOf({ revoked_at: null, expires_at: at }, now - 1)).toBe("active");
  expect(stateOf({ revoked_at: null, expires_at: null }, now)).toBe("active");
});

test("only installation tokens can operate machines", () => {
  expect(scopesFor(false).map(({ scope }) => scope)).not.toContain("operate");
  expect(scopesFor(true).map(({ scope }) => scope)).toContain("operate");
});

test.each(["", "0", "366", "1.5", "ten"])("%j is not a valid lifetime", (text) => {
  expect(daysFault(text)).toBe("Enter a whole number from 1 to 365.");
  expect(daysFault("90")).toBeUndefined();
});
