// What the job page passes to each of its tabs.
import type { JobRow } from "../../live/rows";
import type { JobTopicState } from "../../live/topics";

export interface TabProps {
  jobId: string;
  job: JobRow;
  live: JobTopicState;
}
