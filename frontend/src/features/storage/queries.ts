// Reads and changes stored data. Every change refetches all reads.
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { api, bodyOf, type Schemas } from "../../api/client";
import { type PageQuery, queryClient } from "../../api/queries";
import { isOneOf } from "../../values/guards";

export type Usage = Schemas["StorageOutput"];
export type StoredJob = Schemas["StoredJobOutput"];
export type StoredUpload = Schemas["StoredUploadOutput"];
export type Setting = Schemas["PolicySettingOutput"];
export type Part = Schemas["DeletionItemOutput"];
export type Removal = Schemas["RemovalOutput"];

const STORAGE = "storage";
const PARTS = "parts";
/** While files are still being removed, the list of deletions is read again. */
const DELETIONS_EVERY_MS = 3000;

/** A project's slug, or null for the installation defaults. */
export type PolicyOf = string | null;

export function useUsages() {
  return useQuery({
    queryKey: [STORAGE, "usages"],
    queryFn: () => bodyOf(api.GET("/api/v1/storage", { params: { query: { limit: 500 } } })),
  });
}

export function useStoredJobs(query: PageQuery & { project: string }) {
  return useQuery({
    queryKey: [STORAGE, "jobs", query],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/jobs", { params: { query } })),
    placeholderData: keepPreviousData,
  });
}

/** The parts of a job that can be deleted separately. */
export function useJobParts(jobId: string) {
  return useQuery({
    queryKey: [STORAGE, PARTS, jobId],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/jobs/{job_id}", { params: { path: { job_id: jobId } } })),
    gcTime: 0,
    staleTime: 0,
  });
}

export function useStoredUploads(query: PageQuery & { project: string }) {
  return useQuery({
    queryKey: [STORAGE, "uploads", query],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/uploads", { params: { query } })),
    placeholderData: keepPreviousData,
  });
}

export function useRemovals(query: PageQuery & { project: string }) {
  return useQuery({
    queryKey: [STORAGE, "deletions", query],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/deletions", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) =>
      state.data?.results.some((removal) => removal.finished_at === null) ? DELETIONS_EVERY_MS : false,
  });
}

export function usePlan(project: string) {
  return useQuery({
    queryKey: [STORAGE, "plan", project],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/plan", { params: { query: { project } } })),
  });
}

export function usePolicy(of: PolicyOf) {
  return useQuery({
    queryKey: [STORAGE, "policy", of],
    queryFn: () => bodyOf(api.GET("/api/v1/storage/policy", { params: { query: policyQuery(of) } })),
  });
}

export interface PolicyChanges {
  settings: Record<string, number | null>;
  reset: string[];
}

export function usePolicyEdit(of: PolicyOf) {
  return useMutation({
    mutationFn: (body: PolicyChanges) =>
      bodyOf(api.PATCH("/api/v1/storage/policy", { params: { query: policyQuery(of) }, body })),
    onSuccess: readAnew,
  });
}

export function useDelete(project: string) {
  return useMutation({
    mutationFn: ({ parts, reason }: { parts: readonly Pick<Part, "kind" | "id" | "number">[]; reason: string }) =>
      bodyOf(
        api.POST("/api/v1/storage/deletions", {
          params: { query: { project } },
          body: { items: parts.map(deletionItemOf), reason, dry_run: false },
        }),
      ),
    onSuccess: readAnew,
  });
}

type DeletionItem = Schemas["DeletionItemInputRequest"];

const KINDS = [
  "job",
  "upload",
  "version",
  "checkpoint",
  "trajectories",
  "logs",
] as const satisfies DeletionItem["kind"][];

/** Throws for an unknown kind, which only a newer platform would list. */
function deletionItemOf({ kind, id, number }: Pick<Part, "kind" | "id" | "number">): DeletionItem {
  if (!isOneOf(KINDS, kind)) throw new Error(`This page cannot delete parts of the kind ${kind}.`);
  return { kind, id, ...(number === null ? {} : { number }) };
}

function policyQuery(of: PolicyOf) {
  return of === null ? { installation: true } : { project: of };
}

async function readAnew(): Promise<void> {
  // Except the parts of the job in the closing dialog: the job may no longer exist.
  await queryClient.invalidateQueries({ queryKey: [STORAGE], predicate: ({ queryKey }) => queryKey[1] !== PARTS });
}
