// Provides a page with the forest of its group.
import { useCallback, useEffect, useMemo, useSyncExternalStore } from "react";
import type { GroupTopicState } from "../wire/topic";
import { ForestSource } from "./ForestSource";

/** The text around the canvas is updated this often during growth; the canvas follows every frame. */
const WORDS_EVERY_MS = 250;

/** The forest of a group, kept current. While it grows, the component renders a few times a second. */
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

/** Renders the component a few times a second while the forest changes. */
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
