// Says how much memory of a device the job's model needs in each role, and what for.
import type { Schemas } from "../../../api/client";
import { bytes, plural } from "../../../ui/words/format";

type Memory = Schemas["MemoryOutput"];
type Need = NonNullable<Memory["rollout"]>;

export function MemoryNeeds({ memory }: { memory: Memory }) {
  return (
    <section className="card" data-testid="memory">
      <div className="card-head">
        <h2>Memory of each device</h2>
        <span className="muted">estimated from the model's shape; a device with less than "at least" is not used</span>
      </div>
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Role</th>
            <th scope="col" className="number">
              At least
            </th>
            <th scope="col" className="number">
              Usually
            </th>
            <th scope="col">Of which</th>
          </tr>
        </thead>
        <tbody>
          {memory.rollout === null ? null : <NeedRow name="engine" need={memory.rollout} />}
          <NeedRow name="trainer" need={memory.train} />
        </tbody>
      </table>
    </section>
  );
}

function NeedRow({ name, need }: { name: string; need: Need }) {
  const shared = need.num_devices > 1 ? ` on each of ${plural(need.num_devices, "device")}` : "";
  const parts = need.parts.filter((part) => part.num_bytes > 0);
  return (
    <tr>
      <td>
        {name}
        {shared}
      </td>
      <td className="number">{bytes(need.least_bytes)}</td>
      <td className="number">{bytes(need.usual_bytes)}</td>
      <td className="why">{parts.map((part) => `${bytes(part.num_bytes)} ${part.name}`).join(", ")}</td>
    </tr>
  );
}
