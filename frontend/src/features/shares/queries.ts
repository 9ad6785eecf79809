// Reads shares and pools, and edits them.
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, bodyOf, type Schemas } from "../../api/client";
import { queryClient } from "../../api/queries";

export type Share = Schemas["ShareOutput"];
export type Pool = Schemas["PoolOutput"];

const SHARES = "shares";
const POOLS = "pools";
const EVERY_MS = 5000;
const ALL = { limit: 500, offset: 0 };

export function useShares() {
  return useQuery({
    queryKey: [SHARES],
    queryFn: () => bodyOf(api.GET("/api/v1/shares", { params: { query: ALL } })),
    refetchInterval: EVERY_MS,
  });
}

export function usePools() {
  return useQuery({
    queryKey: [POOLS],
    queryFn: () => bodyOf(api.GET("/api/v1/pools", { params: { query: ALL } })),
    refetchInterval: EVERY_MS,
  });
}

export function useShareEdit(slug: string) {
  return useMutation({
    mutationFn: (body: { weight: number; machine_quota: number | null; priority_ceiling: number; reason: string }) =>
      bodyOf(api.PATCH("/api/v1/shares/{slug}", { params: { path: { slug } }, body })),
    onSuccess: readAnew,
  });
}

export interface GrantEdit {
  pool: string;
  slug: string;
  reason: string;
}

export function usePoolGrant() {
  return useMutation({
    mutationFn: ({ pool, slug, reason }: GrantEdit) =>
      bodyOf(api.PUT("/api/v1/pools/{pool}/grants/{slug}", { params: { path: { pool, slug } }, body: { reason } })),
    onSuccess: readAnew,
  });
}

export function usePoolRevoke() {
  return useMutation({
    mutationFn: ({ pool, slug, reason }: GrantEdit) =>
      bodyOf(api.DELETE("/api/v1/pools/{pool}/grants/{slug}", { params: { path: { pool, slug }, query: { reason } } })),
    onSuccess: readAnew,
  });
}

async function readAnew(): Promise<void> {
  await Promise.all([SHARES, POOLS].map((key) => queryClient.invalidateQueries({ queryKey: [key] })));
}
