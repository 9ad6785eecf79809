// The table of machines. The pencil opens the edit dialog with its dry run. Why a machine is in quarantine has a row of
// its own below the machine's, because it is a sentence.
import { Link } from "react-router";
import type { MachineRow } from "../../live/rows";
import { IconButton } from "../../ui/Button";
import { StateBadge } from "../../ui/StateBadge";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { integer, NONE, plural } from "../../ui/words/format";
import { isOneOf } from "../../values/guards";
import { deviceProblems, hardwareText, quarantineText } from "./hardware";
import { ROLES, tagsInOrder } from "./tags";

interface Props {
  machines: readonly MachineRow[];
  onEdit: ((machineId: string) => void) | null;
  /** The jobs of each machine. Those of other projects are not included. */
  jobs: ReadonlyMap<string, readonly { id: string; name: string }[]>;
}

export function MachineTable({ machines, onEdit, jobs }: Props) {
  return (
    <Table
      rows={machines}
      columns={columnsOf(onEdit, jobs)}
      keyOf={(machine) => machine.id}
      testId="machines"
      className="machines"
      sortedBy="sort"
      below={(machine) => (
        <>
          <Quarantine machine={machine} />
          <CordonedDevices machine={machine} />
        </>
      )}
    />
  );
}

function columnsOf(onEdit: Props["onEdit"], jobs: Props["jobs"]): Columns<MachineRow> {
  return [
    {
      head: "Machine",
      className: "name-cell",
      title: (machine) => machine.name,
      order: (machine) => machine.name,
      cell: (machine) => <strong>{machine.name}</strong>,
    },
    { head: "Health", order: (machine) => machine.health, cell: (machine) => <StateBadge state={machine.health} /> },
    { head: "Tags", cell: (machine) => <Tags machine={machine} onEdit={onEdit} /> },
    {
      head: "Role",
      className: "nowrap",
      order: (machine) => machine.role,
      cell: (machine) =>
        machine.role ? (
          <>
            {machine.role} <StateBadge state={machine.phase_state ?? ""} />
            <span className="muted">{agentWords(machine)}</span>
          </>
        ) : (
          NONE
        ),
    },
    {
      head: "Job",
      className: "job-cell",
      cell: (machine) => <JobLinks jobs={machine.role ? (jobs.get(machine.id) ?? []) : []} />,
    },
    {
      head: "Version",
      isNumber: true,
      order: (machine) => machine.version,
      cell: (machine) => integer(machine.version),
    },
    { head: "Hardware", className: "hardware", cell: (machine) => hardwareText(machine.capabilities) },
    {
      head: "Last edit",
      help: "The reason given for the last edit",
      className: "why note-cell",
      cell: (machine) => machine.reason || NONE,
    },
  ];
}

function Tags({ machine, onEdit }: { machine: MachineRow; onEdit: Props["onEdit"] }) {
  return (
    <span className="tags">
      {tagsInOrder(machine.tags).map((tag) => (
        <span key={tag} className={isOneOf(ROLES, tag) ? "tag role" : "tag"}>
          {tag}
        </span>
      ))}
      {machine.labels.map((label) => (
        <span key={label} className="tag label" title="Reported by the machine; matched like a tag">
          {label}
        </span>
      ))}
      {onEdit ? (
        <IconButton
          icon="pencil"
          label={`Edit ${machine.name}`}
          title="Edit tags, cordon or drain"
          isSmall
          onClick={() => onEdit(machine.id)}
        />
      ) : null}
    </span>
  );
}

const NUM_COLUMNS = 8;

function Quarantine({ machine }: { machine: MachineRow }) {
  const wording = quarantineText(machine, Date.now());
  if (wording === null) return null;
  return (
    <tr className="quarantine">
      <td />
      <td className="why" colSpan={NUM_COLUMNS - 1} data-testid="quarantine">
        {wording}
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
        {problems.map(({ id, problemText, command }) => (
          <div key={id}>
            {problemText} Once it is repaired: <code>{command}</code>
          </div>
        ))}
      </td>
    </tr>
  );
}

function JobLinks({ jobs }: { jobs: readonly { id: string; name: string }[] }) {
  if (jobs.length === 0) return NONE;
  return jobs.map((job, index) => (
    <span key={job.id}>
      {index > 0 ? ", " : null}
      <Link to={`/jobs/${job.id}`} title={job.name}>
        {job.name}
      </Link>
    </span>
  ));
}

/** Shows for how many jobs a machine runs agents, unless its role shows it already. */
function agentWords({ role, num_agents }: MachineRow): string {
  if (num_agents === 0 || (role === "agent" && num_agents === 1)) return "";
  return role === "agent" ? ` of ${num_agents} jobs` : ` and agents of ${plural(num_agents, "job")}`;
}
