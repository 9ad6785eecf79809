// Says how much memory of a device the job's model needs in each role, and what for.
import type { Schemas } from "../../../api/client";
import { Card } from "../../../ui/Cards";
import type { Columns } from "../../../ui/table/columns";
import { Table } from "../../../ui/table/Table";
import { bytes, plural } from "../../../ui/words/format";

type Memory = Schemas["MemoryOutput"];
type Need = Memory["train"] & { name: string };

export function MemoryNeeds({ memory }: { memory: Memory }) {
  const trainer = { ...memory.train, name: "trainer" };
  const rows = memory.rollout === null ? [trainer] : [{ ...memory.rollout, name: "engine" }, trainer];
  return (
    <Card
      title="Memory of each device"
      note={'estimated from the model\'s shape; a device with less than "at least" is not used'}
      className="flush"
      testId="memory"
    >
      <Table rows={rows} columns={COLUMNS} keyOf={(need) => need.name} frame="inside" />
    </Card>
  );
}

const COLUMNS: Columns<Need> = [
  {
    head: "Role",
    cell: ({ name, num_devices }) => (num_devices > 1 ? `${name} on each of ${plural(num_devices, "device")}` : name),
  },
  { head: "At least", isNumber: true, cell: (need) => bytes(need.least_bytes) },
  { head: "Usually", isNumber: true, cell: (need) => bytes(need.usual_bytes) },
  {
    head: "Of which",
    className: "why",
    cell: ({ parts }) =>
      parts
        .filter((part) => part.num_bytes > 0)
        .map((part) => `${bytes(part.num_bytes)} ${part.name}`)
        .join(", "),
  },
];
