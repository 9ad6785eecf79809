// A job's metrics for its charts: read in buckets, over the whole range or the zoomed one, and extended with the points
// received over the socket since.
import { useMemo } from "react";
import { useMetrics } from "../../../api/queries";
import type { Range } from "../../../charts/lines/series";
import type { JobTopicState } from "../../../live/topics";
import { type Metrics, metricsOf } from "./catalogue";

/** The number of buckets that a chart of ordinary width has space for. */
export const BUCKETS = 400;
const MAX_BUCKETS = 5000;
/** The buckets are read again after this many updates, so that a page left open does not keep every point. */
const UPDATES_PER_READ = 200;

export interface JobMetrics {
  metrics: Metrics;
  /** Steps in a bucket. */
  width: number;
}

interface MetricsRequest {
  buckets?: number;
  names?: string;
  range?: Range | null;
}

export function useJobMetrics(
  jobId: string,
  live: JobTopicState | undefined,
  request: MetricsRequest = {},
): JobMetrics {
  const { buckets = BUCKETS, names, range = null } = request;
  const generation = (live?.numSnapshots ?? 0) + Math.floor((live?.job?.num_updates_done ?? 0) / UPDATES_PER_READ);
  const query = {
    buckets: Math.min(Math.max(buckets, 1), MAX_BUCKETS),
    names,
    from: range ? Math.max(Math.floor(range[0]), 0) : undefined,
    to: range ? Math.max(Math.ceil(range[1]), 0) : undefined,
  };
  const read = useMetrics(jobId, query, generation).data;
  const news = live?.metrics;
  return useMemo(
    () => ({ metrics: metricsOf(read?.metrics, news ?? new Map()), width: read?.bucket_width ?? 1 }),
    [read, news],
  );
}
