// The table of machines. The pencil opens the edit dialog with its dry run.
import { Link } from "react-router";
import type { MachineRow } from "../../live/rows";
import { Icon } from "../../ui/Icon";
import { StateBadge } from "../../ui/StateBadge";
import { integer, NONE } from "../../ui/words/format";
import { isOneOf } from "../../values/guards";
import { hardwareSaid, healthOf, quarantineSaid } from "./hardware";
import { ROLES, tagsInOrder } from "./tags";

interface Props {
  machines: readonly MachineRow[];
  onEdit: ((machineId: string) => void) | null;
  /** The job of each machine. Jobs of other projects are not included. */
  jobs: ReadonlyMap<string, { id: string; name: string }>;
}

export function MachineTable({ machines, onEdit, jobs }: Props) {
  return (
    <div className="card flush wide">
      <table className="table machines" data-testid="machines">
        <thead>
          <tr>
            <th>Machine</th>
            <th>Health</th>
            <th>Tags</th>
            <th>Role</th>
            <th>Job</th>
            <th className="number">Version</th>
            <th>Hardware</th>
            <th title="The reason given for the last edit">Last edit</th>
          </tr>
        </thead>
        <tbody>
          {machines.map((machine) => (
            <tr key={machine.id}>
              <td className="name-cell" title={machine.name}>
                <strong>{machine.name}</strong>
              </td>
              <td>
                <StateBadge state={healthOf(machine)} />
                {machine.quarantine ? (
                  <div className="why" data-testid="quarantine">
                    {quarantineSaid(machine, Date.now())}
                  </div>
                ) : null}
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
                  NONE
                )}
              </td>
              <td className="job-cell">
                <JobLink job={machine.role ? jobs.get(machine.id) : undefined} />
              </td>
              <td className="number">{integer(machine.version)}</td>
              <td className="hardware">{hardwareSaid(machine.capabilities)}</td>
              <td className="why note-cell">{machine.reason || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function JobLink({ job }: { job: { id: string; name: string } | undefined }) {
  if (!job) return NONE;
  return (
    <Link to={`/jobs/${job.id}`} title={job.name}>
      {job.name}
    </Link>
  );
}

export function Tag({ tag }: { tag: string }) {
  return <span className={isOneOf(ROLES, tag) ? "tag role" : "tag"}>{tag}</span>;
}
