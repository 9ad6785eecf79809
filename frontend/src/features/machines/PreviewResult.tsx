// The result of a dry run: a sentence for each running phase or job, with those that end first.
import type { usePreview } from "../../api/queries";
import { Icon } from "../../ui/Icon";
import { Problem } from "../../ui/Problem";

export function PreviewResult({ preview }: { preview: ReturnType<typeof usePreview> }) {
  if (preview.isError) return <Problem error={preview.error} />;
  if (!preview.data) return <p className="muted">Asking the scheduler what would happen…</p>;
  const { phases, jobs, sentences } = preview.data;
  const ends = phases.filter((phase) => phase.is_by_edit);
  const isHarmless = ends.length === 0 && !jobs.some((job) => job.is_changed);
  return (
    <section
      className={isHarmless ? "preview" : "preview concerned"}
      aria-label="What will happen"
      data-testid="preview"
    >
      <h3>
        <Icon name={isHarmless ? "play" : "warning"} /> What will happen
      </h3>
      <ul>
        {sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </section>
  );
}
