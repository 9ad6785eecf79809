// Times, durations and numbers as people read them. Absent is a dash, never zero.

export const NONE = "–";
const DAY_S = 86_400;

export function duration(ms) {
  const s = ms / 1000;
  if (s < 10) return `${Math.max(s, 0).toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < DAY_S) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / DAY_S)} d ${Math.floor((s % DAY_S) / 3600)} h`;
}

export function clock(ms) {
  return ms ? new Date(ms).toLocaleTimeString("en-GB") : NONE;
}

export function day(ms) {
  return new Date(ms).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function integer(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en-GB");
}

export function decimal(value, digits = 3) {
  return value === null || value === undefined ? NONE : value.toFixed(digits).replace("-", "−");
}
