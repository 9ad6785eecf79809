// The table of machines. Tags are edited from here: the pencil opens the edit with its dry run.
import type { MachineRow } from "../../live/rows";
import { bytes, integer, NONE } from "../../ui/format";
import { Icon } from "../../ui/Icon";
import { StateBadge } from "../../ui/StateBadge";
import { ROLES, tagsInOrder } from "./tags";

interface Props {
  machines: readonly MachineRow[];
  onEdit: ((machineId: string) => void) | null;
}

export function MachineTable({ machines, onEdit }: Props) {
  return (
    <div className="card flush wide">
      <table className="table roomy" data-testid="machines">
        <thead>
          <tr>
            <th>Machine</th>
            <th>Health</th>
            <th>Tags</th>
            <th>Phase</th>
            <th className="number">Version</th>
            <th>Hardware</th>
            <th>Note</th>
          </tr>
        </thead>
        <tbody>
          {machines.map((machine) => (
            <tr key={machine.id}>
              <td>
                <strong>{machine.name}</strong>
              </td>
              <td>
                <StateBadge state={healthOf(machine)} />
              </td>
              <td>
                <span className="tags">
                  {tagsInOrder(machine.tags).map((tag) => (
                    <Tag key={tag} tag={tag} />
                  ))}
                  {onEdit ? (
                    <button
                      type="button"
                      className="icon-button small"
                      aria-label={`Edit ${machine.name}`}
                      title="Edit tags, cordon or drain"
                      onClick={() => onEdit(machine.id)}
                    >
                      <Icon name="pencil" />
                    </button>
                  ) : null}
                </span>
              </td>
              <td className="nowrap">
                {machine.role ? (
                  <>
                    {machine.role} <StateBadge state={machine.phase_state ?? ""} />
                  </>
                ) : (
                  <span className="muted">none</span>
                )}
              </td>
              <td className="number">{integer(machine.version)}</td>
              <td className="nowrap">{hardware(machine)}</td>
              <td className="why">{machine.reason || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Tag({ tag }: { tag: string }) {
  return <span className={(ROLES as readonly string[]).includes(tag) ? "tag role" : "tag"}>{tag}</span>;
}

function healthOf(machine: MachineRow): string {
  if (!machine.is_healthy) return "down";
  return machine.is_draining ? "draining" : machine.is_cordoned ? "cordoned" : "healthy";
}

function hardware({ capabilities }: MachineRow): string {
  const { num_cores: cores, memory_bytes: memory, accelerators } = capabilities;
  if (!cores) return NONE;
  return [`${cores} core${cores === 1 ? "" : "s"}`, ...(memory ? [bytes(memory)] : []), ...(accelerators ?? [])].join(
    ", ",
  );
}
