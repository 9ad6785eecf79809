// Reads which names the operator has installed, for the fields of the form that take them.
import { useQuery } from "@tanstack/react-query";
import { api, bodyOf, type Schemas } from "../../api/client";

const NONE: ReadonlyMap<string, readonly string[]> = new Map();

/** Names by the path of their field; empty until they are known, because the form works without them. */
export function useInstalledNames(): ReadonlyMap<string, readonly string[]> {
  const found = useQuery({
    queryKey: ["extensions"],
    queryFn: () => bodyOf(api.GET("/api/v1/extensions")),
    select: namesByField,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return found.data ?? NONE;
}

function namesByField(found: Schemas["ExtensionsOutput"]): ReadonlyMap<string, readonly string[]> {
  const names = (listed: readonly { name: string }[]) => listed.map((one) => one.name);
  return new Map([
    ["environment.name", names(found.environments)],
    ["environment.reward", names(found.rewards)],
    ["algorithm.advantage", names(found.advantages)],
  ]);
}
