import { screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { Refusal, show } from "../../../api/testing";
import type { PhaseRow } from "../../../live/rows";
import { useLog } from "./useLog";

vi.mock("../../../live/LiveProvider", () => ({ useServerClock: () => () => Date.parse("2030-06-01T00:00:00Z") }));

function phase(id: string, leasedAt: number): PhaseRow {
  return { id, role: "train", machine: "alpha", leased_at: leasedAt, ended_at: leasedAt + 1, fence: 1 } as PhaseRow;
}

function Shown({ phases }: { phases: readonly PhaseRow[] }) {
  const { text, numBytes, problem } = useLog("train:alpha", phases, "");
  return (
    <>
      <pre>{text}</pre>
      <p>{problem || `${numBytes} bytes`}</p>
    </>
  );
}

/** A log of one part: its text at offset 0, and nothing new after it. */
function log(text: string) {
  return (query: string) => ({
    text: query.includes("offset=0") ? text : "",
    next_offset: text.length,
    num_missing_bytes: 0,
    truncated: false,
    stream: "stdout",
    streams: ["stdout"],
  });
}

it("reads the phases one after another, each from where the last part ended", async () => {
  const given = { "GET /phases/phase_1/logs": log("one\n"), "GET /phases/phase_2/logs": log("two\n") };
  show(<Shown phases={[phase("phase_1", 1000), phase("phase_2", 2000)]} />, { given });
  await vi.waitFor(() => expect(screen.getByText("8 bytes")).toBeTruthy());
  const text = document.querySelector("pre")?.textContent ?? "";
  expect(text.match(/── train on alpha/g)).toHaveLength(2);
  expect(text.indexOf("one")).toBeLessThan(text.indexOf("two"));
});

it("keeps the text when a read is refused, and says why", async () => {
  show(<Shown phases={[phase("phase_1", 1000)]} />, {
    given: { "GET /phases/phase_1/logs": new Refusal(503, { detail: "The database is unavailable." }) },
  });
  expect(await screen.findByText("The database is unavailable.")).toBeTruthy();
});
