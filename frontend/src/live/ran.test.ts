import { expect, test } from "vitest";
import { ranMs } from "./ran";

const TIMES = { started_at: 1000, ended_at: null, paused_at: null, paused_ms: 0 };

test("the time of a job is without its pauses", () => {
  expect(ranMs({ ...TIMES, started_at: null }, 9000)).toBeNull();
  expect(ranMs(TIMES, 9000)).toBe(8000);
  expect(ranMs({ ...TIMES, paused_at: 3000 }, 9000)).toBe(2000);
  expect(ranMs({ ...TIMES, paused_ms: 5000 }, 9000)).toBe(3000);
  expect(ranMs({ ...TIMES, ended_at: 8000, paused_ms: 5000 }, 9000)).toBe(2000);
});
