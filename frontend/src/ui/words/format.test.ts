import { expect, it } from "vitest";
import { age, bytes, decimal, duration, figure, integer, percent, utcClock, versions, zoneText } from "./format";

it("shows a duration in at most two units", () => {
  expect([900, 45_000, 61_000, 3_700_000, 90_000_000].map(duration)).toEqual([
    "0.9 s",
    "45 s",
    "1 min 1 s",
    "1 h 1 min",
    "1 d 1 h",
  ]);
});

it("shows a missing value as a dash and zero as zero", () => {
  expect([integer(null), decimal(undefined), figure(null), versions(null, null)]).toEqual(["–", "–", "–", "–"]);
  expect([integer(0), decimal(0, 1), figure(0)]).toEqual(["0", "0.0", "0"]);
});

it("keeps about three significant digits, whatever the magnitude", () => {
  expect([0.001234, 12.345, 4560.4, 1.2e-9, -0.5].map(figure)).toEqual(["0.00123", "12.3", "4,560", "1.2e−9", "−0.5"]);
});

it("rounds bytes, shares and ages", () => {
  expect([512, 2048, 3 * 2 ** 30].map(bytes)).toEqual(["512 B", "2.0 KiB", "3.0 GiB"]);
  expect([0, 0.004, 0.256].map(percent)).toEqual(["0%", "<1%", "26%"]);
  expect([1000, 59_000, 7_200_000].map(age)).toEqual(["just now", "59 s ago", "2 h ago"]);
});

it("shows a range of one version as a single number", () => {
  expect(versions(3, 3)).toBe("3");
  expect(versions(3, 5)).toBe("3–5");
});

it("names the zone of a time", () => {
  const at = new Date("2026-11-27T15:55:54Z");
  expect(utcClock(at.getTime())).toBe("15:55:54 UTC");
  expect(zoneText(at, "Asia/Tokyo")).toBe("Asia/Tokyo (GMT+9)");
  expect(zoneText(at, "UTC")).toBe("UTC");
});
