// Picks the jobs whose sessions form an offline dataset, and adds their IDs to the list beside it.
import { JobSearch } from "../../pickers/JobSearch";

interface Props {
  value: unknown;
  onChange: (value: unknown) => void;
}

export function JobPicker({ value, onChange }: Props) {
  const named = Array.isArray(value) ? value.map(String) : [];
  return <JobSearch label="Add a job" without={named} onPick={(job) => onChange([...named, job.id])} />;
}
