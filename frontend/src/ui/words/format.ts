// Formats times, durations and numbers for people. A missing value is a dash, never zero.

export const NONE = "–";
const MINUS = "\u2212";
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;
const LOCALE = "en-GB";

export function duration(ms: number): string {
  const s = Math.max(ms, 0) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < MINUTE_S) return `${Math.round(s)} s`;
  if (s < HOUR_S) return `${Math.floor(s / MINUTE_S)} min ${Math.floor(s % MINUTE_S)} s`;
  if (s < DAY_S) return `${Math.floor(s / HOUR_S)} h ${Math.floor((s % HOUR_S) / MINUTE_S)} min`;
  return `${Math.floor(s / DAY_S)} d ${Math.floor((s % DAY_S) / HOUR_S)} h`;
}

/** How long ago, in one unit. For lists, which refresh it regularly. */
export function age(ms: number): string {
  const s = Math.max(ms, 0) / 1000;
  if (s < 5) return "just now";
  if (s < MINUTE_S) return `${Math.floor(s)} s ago`;
  if (s < HOUR_S) return `${Math.floor(s / MINUTE_S)} min ago`;
  if (s < DAY_S) return `${Math.floor(s / HOUR_S)} h ago`;
  return `${Math.floor(s / DAY_S)} d ago`;
}

export function clock(ms: number | null): string {
  return ms === null ? NONE : new Date(ms).toLocaleTimeString(LOCALE);
}

/** A time of day as logs have it. */
export function utcClock(ms: number): string {
  return `${new Date(ms).toLocaleTimeString(LOCALE, { timeZone: "UTC" })} UTC`;
}

/** The zone in which pages show times: `Asia/Tokyo (GMT+9)`. */
export function zoneText(at = new Date(), timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone): string {
  const parts = new Intl.DateTimeFormat(LOCALE, { timeZone, timeZoneName: "shortOffset" }).formatToParts(at);
  const offset = parts.find(({ type }) => type === "timeZoneName")?.value ?? "";
  return timeZone === "UTC" ? timeZone : `${timeZone} (${offset})`;
}

export function moment(ms: number | null): string {
  if (ms === null) return NONE;
  const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;
  return new Date(ms).toLocaleString(LOCALE, parts);
}

/** `1 Feb 2027`: for distant dates. */
export function day(ms: number): string {
  return new Date(ms).toLocaleDateString(LOCALE, { day: "numeric", month: "short", year: "numeric" });
}

export function integer(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : signed(Math.round(value).toLocaleString(LOCALE));
}

export function decimal(value: number | null | undefined, digits = 3): string {
  return value === null || value === undefined ? NONE : signed(value.toFixed(digits));
}

/** A number of unknown size with about three significant digits: `0.00123`, `12.3`, `4,560`, `1.2e−9`. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1000) return signed(Math.round(value).toLocaleString(LOCALE));
  if (size < 1e-3 || size >= 1e12) return signed(value.toExponential(1)).replace("e-", `e${MINUS}`);
  return signed(Number(value.toPrecision(3)).toString());
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), units.length - 1);
  const value = count / 1024 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

export function percent(share: number): string {
  return share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${integer(count)} ${count === 1 ? one : many}`;
}

/** A range of versions, or a single one if first and last are equal. */
export function versions(first: number | null, last: number | null): string {
  if (first === null || last === null) return NONE;
  return first === last ? integer(first) : `${integer(first)}–${integer(last)}`;
}

function signed(text: string): string {
  return text.replace(/^-/, MINUS);
}
