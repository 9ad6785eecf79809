import { fireEvent, screen, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { edits, show } from "../../api/testing";
import type { MachineRow } from "../../live/rows";
import { EditDialog } from "./EditDialog";

const MACHINE = {
  ...{ id: "mac_1", name: "alpha", tags: ["rollout"], is_cordoned: false, is_draining: false },
  ...{ pool: "default", cost: 1, generation: 3 },
} as unknown as MachineRow;
const PREVIEW = { machines: [], phases: [], jobs: [], sentences: [] };

it("has a field for each setting, with its help and limits, and sends the edit with what was seen", async () => {
  show(<EditDialog machine={MACHINE} added="" onClose={() => {}} />, {
    at: "/machines",
    given: { "POST /machines/mac_1/preview": PREVIEW, "PATCH /machines/mac_1": { ...MACHINE, cost: 2.5 } },
  });
  const cost = screen.getByLabelText("Cost") as HTMLInputElement;
  expect([cost.type, cost.min, cost.max, cost.value]).toEqual(["number", "0.01", "1000", "1"]);
  expect((screen.getByLabelText("Pool") as HTMLInputElement).title).toContain("a letter or digit at both ends");
  expect(screen.getByText(/2 for one worth two of them/)).toBeTruthy();
  fireEvent.change(cost, { target: { value: "" } });
  expect(screen.getByText("No changes yet.")).toBeTruthy();
  fireEvent.change(cost, { target: { value: "2.5" } });
  fireEvent.change(screen.getByLabelText(/Reason/), { target: { value: "eight cards" } });
  const apply = screen.getByRole("button", { name: "Apply" }) as HTMLButtonElement;
  await waitFor(() => expect(apply.disabled).toBe(false));
  fireEvent.click(apply);
  const body = { tags: ["rollout"], is_cordoned: false, is_draining: false, pool: "default", cost: 2.5 };
  await waitFor(() => expect(edits().at(-1)).toMatchObject({ method: "PATCH", generation: '"3"' }));
  expect(edits().map((sent) => sent.body)).toEqual([body, { ...body, reason: "eight cards" }]);
});
