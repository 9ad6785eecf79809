// The queue: the jobs that wait for machines or could use more, the machines that each lacks, who has them, and edits
// that would help. It is
// read over REST, again every few seconds, and at once when the live topic shows that a job began or ceased to wait.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, bodyOf } from "../../api/client";
import { type PageQuery, queryClient, useMe } from "../../api/queries";
import { useTopic } from "../../live/LiveProvider";
import { JOBS } from "../../live/topics";
import { PriorityDialog } from "../../pickers/PriorityDialog";
import { ErrorBoundary } from "../../ui/ErrorBoundary";
import { PagedList, usePage } from "../../ui/table/PagedTable";
import { useTitle } from "../../ui/useTitle";
import { QueueCard } from "./QueueCard";
import { type QueueEntry, signatureOf } from "./queueRows";

const PAGE_SIZE = 20;
const EVERY_MS = 3000;
const QUEUE = "queue";

function useQueue(query: PageQuery) {
  return useQuery({
    queryKey: [QUEUE, query],
    queryFn: () => bodyOf(api.GET("/api/v1/queue", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: EVERY_MS,
  });
}

function readAnew(): void {
  void queryClient.invalidateQueries({ queryKey: [QUEUE] });
}

export default function QueuePage() {
  useTitle("Queue");
  const { page } = usePage(PAGE_SIZE);
  const queue = useQueue(page);
  const hasProjects = (useMe().data?.projects.length ?? 0) > 1;
  const signature = signatureOf(useTopic(JOBS.name, JOBS.definition)?.jobs.values() ?? []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the signature says when to read anew; its text does not matter
  useEffect(readAnew, [signature]);
  const [raised, setRaised] = useState<{ entry: QueueEntry; priority: number } | null>(null);
  const entries = queue.data?.results ?? [];
  return (
    <>
      <div className="page-head">
        <div>
          <h1>Queue</h1>
          <p className="muted">
            Jobs that wait for machines, in the order in which they are served, then jobs at work that could use more.
          </p>
        </div>
      </div>
      <PagedList
        read={queue}
        what="the queue"
        none={<NoQueue />}
        limit={PAGE_SIZE}
        words={["Served earlier", "Served later"]}
      >
        <ol className="queue" data-testid="queue">
          {entries.map((entry) => (
            <li key={entry.job_id}>
              <ErrorBoundary isCard>
                <QueueCard
                  entry={entry}
                  hasProjects={hasProjects}
                  onPriority={(priority) => setRaised({ entry, priority })}
                />
              </ErrorBoundary>
            </li>
          ))}
        </ol>
      </PagedList>
      {raised ? (
        <PriorityDialog
          jobId={raised.entry.job_id}
          jobName={raised.entry.job_name}
          generation={raised.entry.generation}
          priority={raised.entry.priority}
          proposed={raised.priority}
          onClose={() => {
            setRaised(null);
            readAnew();
          }}
        />
      ) : null}
    </>
  );
}

function NoQueue() {
  return (
    <section className="card empty">
      <h2>No job waits</h2>
      <p className="muted">
        Every job has the machines that it can use. A job that lacks some appears here, with the machines that would
        fit, who has them, and the cheapest way to let it begin.
      </p>
    </section>
  );
}
