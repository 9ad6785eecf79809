// The list of jobs: a page read over REST and kept current by the live topic. The URL contains filter, search and page.
import { useEffect } from "react";
import { Link } from "react-router";
import { queryClient, useJobs, useMe } from "../../api/queries";
import { useServerNow, useTopic } from "../../live/LiveProvider";
import { JOBS } from "../../live/topics";
import { SearchField } from "../../ui/fields/SearchField";
import { Segments } from "../../ui/fields/Segments";
import { Icon } from "../../ui/Icon";
import { PagedList, usePage } from "../../ui/table/PagedTable";
import { Table } from "../../ui/table/Table";
import { useTitle } from "../../ui/useTitle";
import { oneOf, TEXT, useViewState } from "../../ui/useViewState";
import { jobColumns } from "./jobColumns";
import { FILTER_WORDS, FILTERS, hasDeletedJobs, hasNewJobs, listRows, QUERY_OF } from "./jobRows";
import { NoJobs } from "./NoJobs";

const PAGE_SIZE = 25;
const FILTER = oneOf(FILTERS);

export default function JobsPage() {
  useTitle("Jobs");
  const [filter, setFilter] = useViewState("state", FILTER);
  const [search, setSearch] = useViewState("q", TEXT);
  const { page } = usePage(PAGE_SIZE);
  const jobs = useJobs({ ...page, ...QUERY_OF[filter], search: search || undefined });
  const live = useTopic(JOBS.name, JOBS.definition);
  const now = useServerNow(1000);
  const hasProjects = (useMe().data?.projects.length ?? 0) > 1;
  const read = jobs.data?.results ?? [];
  const isDue =
    jobs.data !== undefined && (hasDeletedJobs(read, live) || (page.offset === 0 && hasNewJobs(read, live)));
  useEffect(() => {
    if (isDue) void queryClient.invalidateQueries({ queryKey: ["jobs"] });
  }, [isDue]);

  const isFiltered = filter !== "all" || search !== "";
  const rows = listRows(read, live);
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
            <Segments legend="State" values={FILTERS} words={FILTER_WORDS} value={filter} onChange={setFilter} />
            <SearchField label="Search jobs" placeholder="Name, owner or ID" value={search} onChange={setSearch} />
          </div>
          <PagedList
            read={jobs}
            what="jobs"
            none="No jobs match. Choose another state or change the search."
            limit={PAGE_SIZE}
          >
            <Table rows={rows} columns={jobColumns(rows, now, hasProjects)} keyOf={(row) => row.id} className="roomy" />
          </PagedList>
        </>
      )}
    </>
  );
}
