import { expect, it } from "vitest";
import { lastLineText, nothingText } from "./outputWords";

it("says what will appear, and why nothing does", () => {
  expect(nothingText("open", { name: "command" })).toMatch(/appears here while it runs/);
  expect(nothingText("closed", undefined)).toBe("This session printed nothing.");
  expect(nothingText("closed", { name: "external" })).toMatch(/outside the platform/);
  expect(nothingText("closed", { name: "command", session_log_bytes: 0 })).toMatch(/session_log_bytes is 0/);
});

it("names the last line of a failed session once", () => {
  expect(lastLineText({ reason: "the set-up took too long", last_line: "pulling the image" })).toBe(
    "pulling the image",
  );
  expect(lastLineText({ reason: "sh exited with code 3: no such tool\n", last_line: "no such tool" })).toBeUndefined();
  expect(lastLineText({ reason: "its machine was lost", last_line: null })).toBeUndefined();
});
