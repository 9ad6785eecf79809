// The job as it was sent, and with every default filled in.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useJob } from "../../api/queries";
import { CopyButton } from "../../ui/CopyButton";
import type { TabProps } from "./JobPage";

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
    <section className="card">
      <div className="card-head">
        <fieldset className="segments small">
          <legend className="visually-hidden">Which form</legend>
          {[true, false].map((resolved) => (
            <label key={String(resolved)} className={resolved === isResolved ? "segment on" : "segment"}>
              <input
                type="radio"
                name="form"
                checked={resolved === isResolved}
                onChange={() => setResolved(resolved)}
              />
              {resolved ? "with every default" : "as submitted"}
            </label>
          ))}
        </fieldset>
        <span className="end">
          <CopyButton text={text ?? ""} label="Copy the YAML" />
        </span>
      </div>
      <pre className="spec" data-testid="spec">
        {text}
      </pre>
    </section>
  );
}
