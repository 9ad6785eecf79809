// Checks that a group exists and the user may see it. Its content arrives over the socket.
import { useQuery } from "@tanstack/react-query";
import { api, bodyOf } from "../../api/client";

export function useGroup(groupId: string) {
  return useQuery({
    queryKey: ["group", groupId],
    queryFn: () => bodyOf(api.GET("/api/v1/groups/{group_id}", { params: { path: { group_id: groupId } } })),
  });
}
