// Reads, adds, changes and removes the members of a project.
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, bodyOf, type Schemas } from "../../api/client";
import { queryClient } from "../../api/queries";

export type Member = Schemas["MemberOutput"];
export type Role = "viewer" | "member" | "owner";
export const ROLES = (["viewer", "member", "owner"] as const).map((role) => [role, role] as const);

const MEMBERS = "members";

export function useMembers(slug: string) {
  return useQuery({
    queryKey: [MEMBERS, slug],
    queryFn: () =>
      bodyOf(api.GET("/api/v1/projects/{slug}/members", { params: { path: { slug }, query: { limit: 500 } } })),
  });
}

export function useMemberAdd(slug: string) {
  return useMutation({
    mutationFn: (body: { username: string; role: Role; invite: boolean }) =>
      bodyOf(api.POST("/api/v1/projects/{slug}/members", { params: { path: { slug } }, body })),
    onSuccess: readAnew,
  });
}

export function useMemberChange(slug: string, username: string) {
  return useMutation({
    mutationFn: (role: Role) =>
      bodyOf(
        api.PATCH("/api/v1/projects/{slug}/members/{username}", {
          params: { path: { slug, username } },
          body: { role },
        }),
      ),
    onSuccess: readAnew,
  });
}

export function useMemberRemove(slug: string, username: string) {
  return useMutation({
    mutationFn: () =>
      bodyOf(api.DELETE("/api/v1/projects/{slug}/members/{username}", { params: { path: { slug, username } } })),
    onSuccess: readAnew,
  });
}

async function readAnew(): Promise<void> {
  // Also refetch the user: owners may have changed or removed themselves.
  await Promise.all([MEMBERS, "me"].map((key) => queryClient.invalidateQueries({ queryKey: [key] })));
}
