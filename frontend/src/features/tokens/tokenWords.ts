// Describes token scopes, and whether a token is still valid. Pure.
import type { Schemas } from "../../api/client";
import { day } from "../../ui/words/format";

export type Token = Schemas["TokenOutput"];
export type Scope = "read" | "submit" | "sessions" | "operate" | "admin";

/** In display order. */
export const SCOPES: readonly { scope: Scope; meaning: string; isOfInstallation?: boolean }[] = [
  { scope: "read", meaning: "See jobs, machines, trajectories and metrics." },
  { scope: "submit", meaning: "Upload files; submit, pause, resume and cancel jobs; delete their data." },
  { scope: "sessions", meaning: "Open, reward and close external sessions at the gateway." },
  { scope: "admin", meaning: "Create and revoke tokens; edit members and the retention policy." },
  { scope: "operate", meaning: "Register and edit machines.", isOfInstallation: true },
];

export const DEFAULT_SCOPES: ReadonlySet<Scope> = new Set(["read", "submit", "sessions"]);
export const DEFAULT_DAYS = 90;
export const MAX_DAYS = 365;

/** The scopes on offer. `operate` is for machines, which belong to the installation. */
export function scopesFor(isInstallation: boolean) {
  return SCOPES.filter(({ isOfInstallation }) => isInstallation || !isOfInstallation);
}

export function stateOf(token: Pick<Token, "revoked_at" | "expires_at">, nowMs: number): string {
  if (token.revoked_at) return "revoked";
  return token.expires_at && Date.parse(token.expires_at) <= nowMs ? "expired" : "active";
}

export function expiryWords(token: Pick<Token, "expires_at">): string {
  return token.expires_at ? day(Date.parse(token.expires_at)) : "never";
}

/** Why a number of days is not accepted; undefined if it is. */
export function daysFault(text: string): string | undefined {
  const days = Number(text);
  if (/^\d+$/.test(text) && days >= 1 && days <= MAX_DAYS) return undefined;
  return `Enter a whole number from 1 to ${MAX_DAYS}.`;
}
