// The list of jobs: a page read over REST and kept current by the live topic. The URL holds filter, search and page.
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { queryClient, useJobs, useMe } from "../../api/queries";
import { useServerNow, useTopic } from "../../live/LiveProvider";
import { JOBS } from "../../live/topics";
import { SearchField } from "../../ui/fields/SearchField";
import { Segments } from "../../ui/fields/Segments";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { Pager } from "../../ui/Pager";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { isOneOf } from "../../values/guards";
import { JobTable } from "./JobTable";
import { FILTER_WORDS, FILTERS, hasDeletedJobs, hasNewJobs, listRows, QUERY_OF } from "./jobRows";
import { NoJobs } from "./NoJobs";

const PAGE_SIZE = 25;
const SEARCH_PAUSE_MS = 250;

export default function JobsPage() {
  useTitle("Jobs");
  const [address, setAddress] = useSearchParams();
  const asked = address.get("state");
  const filter = isOneOf(FILTERS, asked) ? asked : "all";
  const search = address.get("q") ?? "";
  const offset = Number(address.get("offset") ?? 0) || 0;
  const jobs = useJobs({ limit: PAGE_SIZE, offset, ...QUERY_OF[filter], search: search || undefined });
  const live = useTopic(JOBS.name, JOBS.definition);
  const now = useServerNow(1000);
  const hasProjects = (useMe().data?.projects.length ?? 0) > 1;
  const page = jobs.data?.results ?? [];
  const isDue = jobs.data !== undefined && (hasDeletedJobs(page, live) || (offset === 0 && hasNewJobs(page, live)));
  useEffect(() => {
    if (isDue) void queryClient.invalidateQueries({ queryKey: ["jobs"] });
  }, [isDue]);

  const change = (changes: Record<string, string>) => {
    const next = new URLSearchParams(address);
    for (const [key, value] of Object.entries({ offset: "", ...changes })) {
      if (value) next.set(key, value);
      else next.delete(key);
    }
    setAddress(next, { replace: true });
  };
  const isFiltered = filter !== "all" || search !== "";
  const rows = listRows(page, live);
  return (
    <>
      <div className="page-head">
        <h1>Jobs</h1>
        <Link className="button main" to="/jobs/new">
          <Icon name="plus" /> New job
        </Link>
      </div>
      {jobs.data?.count === 0 && !isFiltered ? (
        <NoJobs />
      ) : (
        <>
          <div className="toolbar">
            <Segments
              legend="State"
              values={FILTERS}
              words={FILTER_WORDS}
              value={filter}
              onChange={(state) => change({ state: state === "all" ? "" : state })}
            />
            <JobsSearch value={search} onChange={(q) => change({ q })} />
          </div>
          <Problem error={jobs.error} />
          {jobs.isPending ? <Loading what="Loading jobs" /> : null}
          {rows.length > 0 ? <JobTable rows={rows} now={now} hasProjects={hasProjects} /> : null}
          {jobs.data?.count === 0 && isFiltered ? (
            <p className="none">No jobs match. Choose another state or change the search.</p>
          ) : null}
          <Pager
            offset={offset}
            limit={PAGE_SIZE}
            count={jobs.data?.count ?? 0}
            onMove={(to) => change({ offset: to ? String(to) : "" })}
          />
        </>
      )}
    </>
  );
}

/** Sends the query once the user pauses typing. */
function JobsSearch({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), SEARCH_PAUSE_MS);
    return () => clearTimeout(timer);
  });
  return <SearchField label="Search jobs" placeholder="Name, owner or ID" value={text} onChange={setText} />;
}
