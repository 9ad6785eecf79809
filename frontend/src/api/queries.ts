// Cached reads of the REST API. What changes while one looks comes over the live socket; these are its beginnings.
import { QueryClient, useQuery } from "@tanstack/react-query";
import { ApiProblem, api, bodyOf, type Schemas } from "./client";

const NUM_RETRIES = 2;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      refetchOnWindowFocus: false,
      // A refusal stays one; only an unreachable or failing platform is asked again.
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
