// Picks jobs whose recorded sessions are trained: adds the id of one to the list beside it.
import { useJobs } from "../../api/queries";

const NUM_OFFERED = 100;

interface Props {
  value: unknown;
  onChange: (value: unknown) => void;
}

export function JobPicker({ value, onChange }: Props) {
  const jobs = useJobs({ limit: NUM_OFFERED, offset: 0 }).data?.results ?? [];
  const named = Array.isArray(value) ? value.map(String) : [];
  const offered = jobs.filter((job) => !named.includes(job.id));
  return (
    <select
      className="input"
      aria-label="Add a job"
      value=""
      disabled={offered.length === 0}
      onChange={(event) => onChange([...named, event.target.value])}
    >
      <option value="">{offered.length ? "Add a job…" : "No other job"}</option>
      {offered.map((job) => (
        <option key={job.id} value={job.id}>
          {job.name} ({job.state}, {job.id.slice(-6)})
        </option>
      ))}
    </select>
  );
}
