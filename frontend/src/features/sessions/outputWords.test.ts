import { expect, it } from "vitest";
import { lastLineSaid, nothingSaid } from "./outputWords";

it("says what will appear, and why nothing does", () => {
  expect(nothingSaid("open", { name: "command" })).toMatch(/appears here while it runs/);
  expect(nothingSaid("closed", undefined)).toBe("This session printed nothing.");
  expect(nothingSaid("closed", { name: "external" })).toMatch(/outside the platform/);
  expect(nothingSaid("closed", { name: "command", session_log_bytes: 0 })).toMatch(/session_log_bytes is 0/);
});

it("names the last line of a failed session once", () => {
  expect(lastLineSaid({ reason: "the set-up took too long", last_line: "pulling the image" })).toBe(
    "pulling the image",
  );
  expect(lastLineSaid({ reason: "sh exited with code 3: no such tool\n", last_line: "no such tool" })).toBeUndefined();
  expect(lastLineSaid({ reason: "its machine was lost", last_line: null })).toBeUndefined();
});
