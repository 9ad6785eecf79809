import { describe, expect, test } from "vitest";
import { itemAt } from "../../values/columns";
import { allOf, bytesOf, chosenOf, MAX_PARTS, partWords, toggled } from "./parts";
import { changesOf, draftFault, draftOf, isEmpty, valueWords } from "./policy";
import type { Part, Setting } from "./queries";
import { sharesOf } from "./usage";

function part(kind: string, number: number | null = null, fields: Partial<Part> = {}): Part {
  return { kind, id: "job_1", number, name: "calculator", num_bytes: 100, reason: "", refusal: "", ...fields };
}

function setting(fields: Partial<Setting> = {}): Setting {
  return {
    name: "logs_days",
    value: 30,
    is_own: false,
    default: 30,
    minimum: 0,
    maximum: 36_500,
    unit: "days",
    may_be_none: true,
    is_of_installation: false,
    help: "",
    ...fields,
  };
}

describe("usage", () => {
  test("shares add up to one, in a fixed order", () => {
    const shares = sharesOf({ num_bytes: 400, by_kind: { logs: 100, checkpoints: 300 } });
    expect(shares.map(({ share }) => share).reduce((a, b) => a + b)).toBeCloseTo(1);
    expect(shares[0]).toMatchObject({ kind: "checkpoints", numBytes: 300, share: 0.75 });
  });

  test("a project without bytes has no shares", () => {
    expect(sharesOf({ num_bytes: 0, by_kind: {} }).every(({ share }) => share === 0)).toBe(true);
  });
});

describe("policy", () => {
  test("values are put into words", () => {
    expect(valueWords(setting(), 30)).toBe("30 days");
    expect(valueWords(setting(), 1)).toBe("1 day");
    expect(valueWords(setting(), null)).toBe("forever");
    expect(valueWords(setting({ unit: "", maximum: 1 }), 1)).toBe("yes");
  });

  test("only changed settings are sent", () => {
    const rows = [setting(), setting({ name: "events_days", is_own: true, value: 90 }), setting({ name: "jobs_days" })];
    const drafts = Object.fromEntries(rows.map((row) => [row.name, draftOf(row)]));
    expect(isEmpty(changesOf(rows, drafts))).toBe(true);
    drafts.logs_days = { isOwn: true, isForever: true, text: "30" };
    drafts.events_days = { isOwn: false, isForever: false, text: "90" };
    drafts.jobs_days = { isOwn: true, isForever: false, text: "7" };
    expect(changesOf(rows, drafts)).toEqual({ settings: { logs_days: null, jobs_days: 7 }, reset: ["events_days"] });
  });

  test("an inherited value is sent once the project sets it itself", () => {
    const rows = [setting()];
    expect(changesOf(rows, { logs_days: { isOwn: true, isForever: false, text: "30" } }).settings).toEqual({
      logs_days: 30,
    });
  });

  test.each(["", "-1", "1.5", "ten", "36501"])("%j is not a valid number of days", (text) => {
    expect(draftFault(setting(), { isOwn: true, isForever: false, text })).toMatch(/0 to 36500/);
    expect(draftFault(setting(), { isOwn: false, isForever: false, text })).toBeUndefined();
  });
});

describe("parts", () => {
  const parts = [
    part("job", null, { num_bytes: 1000 }),
    part("logs"),
    part("checkpoint", 4),
    part("checkpoint", 2),
    part("version", 1),
    part("version", 2, { refusal: "version 2 is pinned; unpin it first" }),
  ];

  test("choosing the whole job deselects its parts", () => {
    const some = toggled(toggled(new Set(), itemAt(parts, 1)), itemAt(parts, 2));
    expect(some).toEqual(new Set(["logs", "checkpoint-4"]));
    expect(toggled(some, itemAt(parts, 0))).toEqual(new Set(["job"]));
    expect(toggled(new Set(["job"]), itemAt(parts, 1))).toEqual(new Set(["logs"]));
    expect(toggled(some, itemAt(parts, 1))).toEqual(new Set(["checkpoint-4"]));
  });

  test("choosing all parts of a kind leaves out the newest and those that cannot be deleted", () => {
    expect(allOf(parts, "checkpoint", 1)).toEqual(new Set(["checkpoint-2"]));
    expect(allOf(parts, "version", 0)).toEqual(new Set(["version-1"]));
    const many = Array.from({ length: MAX_PARTS + 9 }, (_, number) => part("version", number));
    expect(allOf(many, "version", 1).size).toBe(MAX_PARTS);
  });

  test("parts that cannot be deleted are never chosen", () => {
    const chosen = chosenOf(parts, new Set(["version-1", "version-2"]));
    expect(chosen.map(partWords)).toEqual(["Policy version 1"]);
    expect(bytesOf(chosen)).toBe(100);
  });
});
