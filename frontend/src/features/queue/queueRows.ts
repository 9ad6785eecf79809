// What the queue page says of each entry and where its offers lead. Pure.
import type { Schemas } from "../../api/client";

export type QueueEntry = Schemas["QueueEntryOutput"];
export type Offer = Schemas["QueueUnblockOutput"];

/** How the reader may carry out an offer; null if there is nothing to do or another person has to do it. */
export type Action = { to: string; word: string } | { priority: number; word: string } | null;

const SHORT_LACKS: Record<string, string> = {
  floor: "waits to begin",
  quota: "over its project's quota",
  engines: "could use more",
  turn: "waits to train",
};

export function placeText(entry: Pick<QueueEntry, "place" | "lack">): string {
  return entry.place === null ? "At work" : `${entry.place}.`;
}

export function lackText(lack: string): string {
  return SHORT_LACKS[lack] ?? lack;
}

export function actionOf(offer: Offer): Action {
  if (!offer.may_do) return null;
  switch (offer.kind) {
    case "retag":
      return offer.machine_id
        ? { to: `/machines?edit=${offer.machine_id}&add=${encodeURIComponent(offer.tags.join(","))}`, word: "Retag…" }
        : null;
    case "priority":
      return offer.value === null ? null : { priority: offer.value, word: "Raise…" };
    case "quota":
    case "grant":
      return { to: "/shares", word: "Open shares" };
    default:
      return null;
  }
}

/** Changes whenever a job of the queue may have moved: who waits, in which state and why. */
export function signatureOf(jobs: Iterable<{ id: string; state: string; waiting_reason: string }>): string {
  return [...jobs]
    .filter(({ state, waiting_reason }) => state === "queued" || waiting_reason !== "")
    .map(({ id, state, waiting_reason }) => `${id} ${state} ${waiting_reason}`)
    .sort()
    .join("\n");
}
