// The table of machines. The pencil opens the edit dialog with its dry run. Why a machine is in quarantine has a row of
// its own below the machine's, because it is a sentence.
import { Fragment } from "react";
import { Link } from "react-router";
import type { MachineRow } from "../../live/rows";
import { Icon } from "../../ui/Icon";
import { StateBadge } from "../../ui/StateBadge";
import { integer, NONE, plural } from "../../ui/words/format";
import { isOneOf } from "../../values/guards";
import { deviceProblems, hardwareSaid, healthOf, quarantineSaid } from "./hardware";
import { ROLES, tagsInOrder } from "./tags";

interface Props {
  machines: readonly MachineRow[];
  onEdit: ((machineId: string) => void) | null;
  /** The jobs of each machine. Those of other projects are not included. */
  jobs: ReadonlyMap<string, readonly { id: string; name: string }[]>;
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
            <Fragment key={machine.id}>
              <tr>
                <td className="name-cell" title={machine.name}>
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
                    {machine.labels.map((label) => (
                      <span key={label} className="tag label" title="Reported by the machine; matched like a tag">
                        {label}
                      </span>
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
                      <span className="muted">{agentWords(machine)}</span>
                    </>
                  ) : (
                    NONE
                  )}
                </td>
                <td className="job-cell">
                  <JobLinks jobs={machine.role ? (jobs.get(machine.id) ?? []) : []} />
                </td>
                <td className="number">{integer(machine.version)}</td>
                <td className="hardware">{hardwareSaid(machine.capabilities)}</td>
                <td className="why note-cell">{machine.reason || NONE}</td>
              </tr>
              <Quarantine machine={machine} />
              <CordonedDevices machine={machine} />
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const NUM_COLUMNS = 8;

function Quarantine({ machine }: { machine: MachineRow }) {
  const said = quarantineSaid(machine, Date.now());
  if (said === null) return null;
  return (
    <tr className="quarantine">
      <td />
      <td className="why" colSpan={NUM_COLUMNS - 1} data-testid="quarantine">
        {said}
      </td>
    </tr>
  );
}

function CordonedDevices({ machine }: { machine: MachineRow }) {
  const problems = deviceProblems(machine);
  if (problems.length === 0) return null;
  return (
    <tr className="quarantine">
      <td />
      <td className="why" colSpan={NUM_COLUMNS - 1} data-testid="cordoned-devices">
        {problems.map(({ id, problemSaid, command }) => (
          <div key={id}>
            {problemSaid} Once it is repaired: <code>{command}</code>
          </div>
        ))}
      </td>
    </tr>
  );
}

function JobLinks({ jobs }: { jobs: readonly { id: string; name: string }[] }) {
  if (jobs.length === 0) return NONE;
  return jobs.map((job, place) => (
    <span key={job.id}>
      {place > 0 ? ", " : null}
      <Link to={`/jobs/${job.id}`} title={job.name}>
        {job.name}
      </Link>
    </span>
  ));
}

/** Says for how many jobs a machine runs agents, unless its role tells it already. */
function agentWords({ role, num_agents }: MachineRow): string {
  if (num_agents === 0 || (role === "agent" && num_agents === 1)) return "";
  return role === "agent" ? ` of ${num_agents} jobs` : ` and agents of ${plural(num_agents, "job")}`;
}

export function Tag({ tag }: { tag: string }) {
  return <span className={isOneOf(ROLES, tag) ? "tag role" : "tag"}>{tag}</span>;
}
