// Gives a page the forest of its group.
import { useCallback, useEffect, useMemo, useSyncExternalStore } from "react";
import { ForestSource } from "./ForestSource";
import type { GroupTopicState } from "./topic";

/** The words around the canvas follow growth this slowly; the canvas itself follows each frame. */
const WORDS_EVERY_MS = 250;

/** The forest of a group, kept current; what reads it is rendered anew a few times a second while it grows. */
export function useForestSource(groupId: string, state: GroupTopicState | undefined): ForestSource {
  const source = useMemo(() => new ForestSource(groupId), [groupId]);
  useEffect(() => {
    source.start();
    return () => source.stop();
  }, [source]);
  useEffect(() => {
    if (state) source.take(state);
  }, [source, state]);
  useSlowRevision(source);
  return source;
}

/** Renders anew a few times a second while the forest changes. */
function useSlowRevision(source: ForestSource): void {
  const watch = useCallback(
    (render: () => void) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const stop = source.subscribe(() => {
        timer ??= setTimeout(
          () => {
            timer = undefined;
            render();
          },
          source.revision <= 1 ? 0 : WORDS_EVERY_MS,
        );
      });
      return () => {
        stop();
        clearTimeout(timer);
      };
    },
    [source],
  );
  useSyncExternalStore(watch, () => source.revision);
}
