import { useEffect } from "react";

/** The tab's title while the component is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · SeamlessFlow`;
  }, [title]);
}
