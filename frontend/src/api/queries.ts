// Cached reads of the REST API. They give the initial state; later changes arrive over the live socket.
import { keepPreviousData, QueryClient, useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { ApiProblem, api, bodyOf, type Schemas } from "./client";
import type { operations } from "./schema.gen";

const NUM_RETRIES = 2;
const OPEN_SESSION_EVERY_MS = 3000;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      refetchOnWindowFocus: false,
      // Refusals are final. Only an unreachable or failing platform is retried.
      retry: (count, error) =>
        count < NUM_RETRIES && (!(error instanceof ApiProblem) || error.status === 0 || error.status >= 500),
    },
  },
});

export type Me = Schemas["MeOutput"];

export function useMe() {
  return useQuery({
    queryKey: ["me"],
    queryFn: () => bodyOf(api.GET("/api/v1/me")),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export type JobItem = Schemas["JobListItemOutput"];

export interface JobListQuery {
  limit: number;
  offset: number;
  state?: string | undefined;
  search?: string | undefined;
}

export function useJobs(query: JobListQuery) {
  return useQuery({
    queryKey: ["jobs", query],
    queryFn: () => bodyOf(api.GET("/api/v1/jobs", { params: { query: defined(query) } })),
    placeholderData: keepPreviousData,
  });
}

export function useJob(jobId: string) {
  return useQuery({
    queryKey: ["job", jobId],
    queryFn: () => bodyOf(api.GET("/api/v1/jobs/{job_id}", { params: { path: { job_id: jobId } } })),
  });
}

export interface MetricsQuery {
  /** Maximum rows per metric: as many as a chart has space for. */
  buckets: number;
  names?: string | undefined;
  from?: number | undefined;
  to?: number | undefined;
}

/**
 * A job's metrics over their whole range or a range within it, as columns. `generation` grows when points may have been
 * missed.
 */
export function useMetrics(jobId: string, query: MetricsQuery, generation: number) {
  return useQuery({
    queryKey: ["metrics", jobId, query, generation],
    queryFn: () =>
      bodyOf(api.GET("/api/v1/jobs/{job_id}/metrics", { params: { path: { job_id: jobId }, query: defined(query) } })),
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useJobLedger(jobId: string, everyMs: number | false) {
  return useQuery({
    queryKey: ["ledger", jobId],
    queryFn: () => bodyOf(api.GET("/api/v1/jobs/{job_id}/ledger", { params: { path: { job_id: jobId } } })),
    refetchInterval: everyMs,
  });
}

export interface PageQuery {
  limit: number;
  offset: number;
}

export function useGroups(
  jobId: string,
  query: PageQuery & { state?: GroupState | undefined; evaluation?: number | undefined },
  everyMs: number | false,
) {
  return useQuery({
    queryKey: ["groups", jobId, query],
    queryFn: () =>
      bodyOf(api.GET("/api/v1/jobs/{job_id}/groups", { params: { path: { job_id: jobId }, query: defined(query) } })),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });
}

type EventQuery = NonNullable<operations["job_event_list"]["parameters"]["query"]>;
export type EventSubjects = NonNullable<EventQuery["subject"]>;

export function useJobEvents(
  jobId: string,
  query: PageQuery & { subject?: EventSubjects | undefined },
  everyMs: number | false,
) {
  return useQuery({
    queryKey: ["events", jobId, query],
    queryFn: () =>
      bodyOf(api.GET("/api/v1/jobs/{job_id}/events", { params: { path: { job_id: jobId }, query: defined(query) } })),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });
}

function phasesRead(jobId: string, query: PageQuery) {
  return bodyOf(api.GET("/api/v1/jobs/{job_id}/phases", { params: { path: { job_id: jobId }, query } }));
}

/** The leases of machines to a job, newest first. */
export function usePhases(jobId: string, query: PageQuery, everyMs: number | false) {
  return useQuery({
    queryKey: ["phases", jobId, query],
    queryFn: () => phasesRead(jobId, query),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });
}

const PHASES_PER_READ = 500;

/** The newest leases. Each call of `fetchNextPage` adds older ones. */
export function useManyPhases(jobId: string) {
  return useInfiniteQuery({
    queryKey: ["many-phases", jobId],
    queryFn: ({ pageParam }) => phasesRead(jobId, { limit: PHASES_PER_READ, offset: pageParam }),
    initialPageParam: 0,
    // Rows may be added between the page and its count, so a page that is not full is the last one.
    getNextPageParam: ({ offset, results }) =>
      results.length === PHASES_PER_READ ? offset + results.length : undefined,
  });
}

export function useEvaluations(jobId: string, query: PageQuery, everyMs: number | false) {
  return useQuery({
    queryKey: ["evaluations", jobId, query],
    queryFn: () => bodyOf(api.GET("/api/v1/jobs/{job_id}/evaluations", { params: { path: { job_id: jobId }, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });
}

export function useGroup(groupId: string, everyMs: number | false = false) {
  return useQuery({
    queryKey: ["group", groupId],
    queryFn: () => bodyOf(api.GET("/api/v1/groups/{group_id}", { params: { path: { group_id: groupId } } })),
    refetchInterval: everyMs,
  });
}

export function useSession(sessionId: string, withTokens: boolean) {
  return useQuery({
    queryKey: ["session", sessionId, withTokens],
    queryFn: () =>
      bodyOf(
        api.GET("/api/v1/sessions/{session_id}", {
          params: { path: { session_id: sessionId }, query: { tokens: withTokens } },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.state === "open" ? OPEN_SESSION_EVERY_MS : false),
  });
}

export function useMachineLedger(machineId: string, since: string | undefined) {
  return useQuery({
    queryKey: ["machine-ledger", machineId, since],
    queryFn: () =>
      bodyOf(
        api.GET("/api/v1/machines/{machine_id}/ledger", {
          params: { path: { machine_id: machineId }, query: defined({ since }) },
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export type JobVerb = "cancel" | "pause" | "resume";

export function useJobEdit(jobId: string) {
  return useMutation({
    mutationFn: ({ verb, reason }: { verb: JobVerb; reason: string }) =>
      bodyOf(api.POST(`/api/v1/jobs/{job_id}/${verb}`, { params: { path: { job_id: jobId } }, body: { reason } })),
    onSuccess: (job) => queryClient.setQueryData(["job", jobId], job),
  });
}

type GroupState = NonNullable<NonNullable<operations["job_group_list"]["parameters"]["query"]>["state"]>;

/**
 * Removes keys whose value is undefined, so that they are not sent. It needs a cast, because `Object.fromEntries` loses
 * the types of the single keys.
 */
function defined<T extends object>(query: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined)) as never;
}

export type MachineEdit = Required<Schemas["MachinePreviewInputRequest"]>;
export type Preview = Schemas["MachinesPreviewOutput"];

/** A dry run: the scheduler's decisions about everything that runs. It changes nothing. */
export function usePreview(machineId: string, edit: MachineEdit | null) {
  return useQuery({
    queryKey: ["preview", machineId, edit],
    queryFn: () =>
      bodyOf(
        api.POST("/api/v1/machines/{machine_id}/preview", {
          params: { path: { machine_id: machineId } },
          body: edit ?? {},
        }),
      ),
    enabled: edit !== null,
    gcTime: 0,
    staleTime: 0,
  });
}

const JOBS_EVERY_MS = 3000;

/** The jobs of each machine. The live topic is common to all projects, so it cannot include it. */
export function useJobsOfMachines() {
  return useQuery({
    queryKey: ["machine-jobs"],
    queryFn: () => bodyOf(api.GET("/api/v1/machines", { params: { query: { limit: 500, offset: 0 } } })),
    select: (page) =>
      new Map(
        page.results.map(({ id, phases }) => {
          const known = phases.flatMap(({ job_id, job_name }): [string, string][] =>
            job_id && job_name ? [[job_id, job_name]] : [],
          );
          return [id, [...new Map(known)].map(([id, name]) => ({ id, name }))] as const;
        }),
      ),
    refetchInterval: JOBS_EVERY_MS,
  });
}

/** Reads the current state of a machine. */
export function machineRead(machineId: string) {
  return bodyOf(api.GET("/api/v1/machines/{machine_id}", { params: { path: { machine_id: machineId } } }));
}

export function useMachineEdit(machineId: string) {
  return useMutation({
    mutationFn: ({ edit, reason, generation }: { edit: MachineEdit; reason: string; generation: number }) =>
      bodyOf(
        api.PATCH("/api/v1/machines/{machine_id}", {
          params: { path: { machine_id: machineId }, header: { "If-Match": `"${generation}"` } },
          body: { ...edit, reason },
        }),
      ),
  });
}

export function useTokens(query: PageQuery) {
  return useQuery({
    queryKey: ["tokens", query],
    queryFn: () => bodyOf(api.GET("/api/v1/tokens", { params: { query } })),
  });
}

/** `generation` grows with every new version. */
export function useVersions(jobId: string, query: PageQuery, generation: number) {
  return useQuery({
    queryKey: ["versions", jobId, query, generation],
    queryFn: () => bodyOf(api.GET("/api/v1/jobs/{job_id}/versions", { params: { path: { job_id: jobId }, query } })),
    placeholderData: keepPreviousData,
  });
}
