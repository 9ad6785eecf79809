// The horizontal axis of a chart: policy updates, or the time at which they were published.

export type XKind = "update" | "time";
