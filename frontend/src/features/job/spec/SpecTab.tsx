// The job spec as submitted, and with every default filled in.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useJob } from "../../../api/queries";
import { CopyButton } from "../../../ui/CopyButton";
import { Segments } from "../../../ui/fields/Segments";
import type { TabProps } from "../tab";
import { MemoryNeeds } from "./MemoryNeeds";

const FORMS = ["with all defaults", "as submitted"] as const;

export function SpecTab({ jobId }: TabProps) {
  const [isResolved, setResolved] = useState(true);
  const job = useJob(jobId).data;
  const spec = isResolved ? job?.spec : job?.spec_submitted;
  const text = useQuery({
    queryKey: ["yaml", jobId, isResolved],
    queryFn: async () => (await import("yaml")).stringify(spec),
    enabled: spec !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  }).data;
  return (
    <div className="stack">
      {job?.memory ? <MemoryNeeds memory={job.memory} /> : null}
      <section className="card">
        <div className="card-head">
          <Segments
            legend="Spec form"
            values={FORMS}
            value={isResolved ? FORMS[0] : FORMS[1]}
            onChange={(form) => setResolved(form === FORMS[0])}
            isSmall
          />
          <span className="end">
            <CopyButton text={text ?? ""} label="Copy the YAML" />
          </span>
        </div>
        <pre className="spec" data-testid="spec">
          {text}
        </pre>
      </section>
    </div>
  );
}
