// A text field with completion that finds a job of any age by some of its name, owner or ID.
import { useEffect, useId, useState } from "react";
import { type JobItem, useJobs } from "../api/queries";

const NUM_OFFERED = 20;
const PAUSE_MS = 200;

interface Props {
  label: string;
  /** IDs to leave out of the suggestions. */
  without: readonly string[];
  onPick: (job: JobItem) => void;
}

export function JobSearch({ label, without, onPick }: Props) {
  const listId = useId();
  const [text, setText] = useState("");
  const search = useDelayed(text.trim());
  const found = useJobs({ limit: NUM_OFFERED + without.length, offset: 0, search: search || undefined });
  const offered = (found.data?.results ?? []).filter((job) => !without.includes(job.id));
  const isNothing = search !== "" && !found.isFetching && offered.length === 0;
  return (
    <span className="job-search">
      <input
        className="input"
        aria-label={label}
        placeholder={`${label}: name, owner or ID`}
        list={listId}
        value={text}
        onChange={(event) => {
          const job = offered.find((one) => saidOf(one) === event.target.value);
          setText(job ? "" : event.target.value);
          if (job) onPick(job);
        }}
      />
      <datalist id={listId}>
        {offered.map((job) => (
          <option key={job.id} value={saidOf(job)} label={job.id} />
        ))}
      </datalist>
      {isNothing ? (
        <span className="muted" role="status">
          No jobs match.
        </span>
      ) : null}
    </span>
  );
}

/** The text that choosing a job puts into the field. Names need not be unique, so it ends with the end of the ID. */
function saidOf(job: JobItem): string {
  return `${job.name} (${job.state}, ${job.id.slice(-6)})`;
}

function useDelayed(text: string): string {
  const [delayed, setDelayed] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return delayed;
}
