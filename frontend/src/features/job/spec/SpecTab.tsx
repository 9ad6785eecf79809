// The job spec as submitted, and with every default filled in.
import { useQuery } from "@tanstack/react-query";
import { useJob } from "../../../api/queries";
import { Cards } from "../../../ui/Cards";
import { CopyButton } from "../../../ui/CopyButton";
import { Segments } from "../../../ui/fields/Segments";
import { oneOf, useViewState } from "../../../ui/useViewState";
import type { TabProps } from "../tab";
import { MemoryNeeds } from "./MemoryNeeds";

const FORMS = ["with all defaults", "as submitted"] as const;
const FORM = oneOf(FORMS);

export function SpecTab({ jobId }: TabProps) {
  const [form, setForm] = useViewState("form", FORM);
  const isResolved = form === FORMS[0];
  const job = useJob(jobId).data;
  const spec = isResolved ? job?.spec : job?.spec_submitted;
  const text = useQuery({
    queryKey: ["yaml", jobId, isResolved],
    queryFn: async () => (await import("yaml")).stringify(spec),
    enabled: spec !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  }).data;
  return (
    <Cards>
      {job?.memory ? <MemoryNeeds memory={job.memory} /> : null}
      <section className="card">
        <div className="card-head">
          <Segments legend="Spec form" values={FORMS} value={form} onChange={setForm} isSmall />
          <span className="end">
            <CopyButton text={text ?? ""} label="Copy the YAML" />
          </span>
        </div>
        <pre className="spec" data-testid="spec">
          {text}
        </pre>
      </section>
    </Cards>
  );
}
