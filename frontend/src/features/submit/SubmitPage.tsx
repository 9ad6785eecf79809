// Submits a job: a form generated from the job spec's schema, beside the same spec as YAML. Editing either one updates
// the other. `?from=<job>` starts from the spec of that job, `?imitate=<job>` from training on its sessions.
import { useMutation } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { ApiProblem, api, bodyOf } from "../../api/client";
import { queryClient, useJob, useMe } from "../../api/queries";
import { chosenProject, type MyProject } from "../../pickers/ProjectPicker";
import { Segments } from "../../ui/fields/Segments";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { sections, withInstalled } from "./fields";
import { useInstalledNames } from "./queries";
import { SpecForm } from "./SpecForm";
import { faultsByField, isOffline, type Spec } from "./spec";
import { type Draft, draftOf, withText, withValue } from "./specText";
import { imitationOf, rolloutJob, STARTER_SPECS, starterSpecOf } from "./starterSpecs";

const YamlEditor = lazy(() => import("./YamlEditor"));

export default function SubmitPage() {
  const address = useSearchParams()[0];
  const from = address.get("from");
  const imitated = address.get("imitate");
  if (from) return <FromJob key={from} jobId={from} begin={(job) => job.spec_submitted} />;
  if (imitated) return <FromJob key={imitated} jobId={imitated} begin={imitationOf} />;
  return <Submit starter={rolloutJob()} />;
}

type JobDetail = NonNullable<ReturnType<typeof useJob>["data"]>;

function FromJob({ jobId, begin }: { jobId: string; begin: (job: JobDetail) => Spec }) {
  const job = useJob(jobId);
  if (job.error) return <Problem error={job.error} />;
  return job.data ? <Submit starter={begin(job.data)} /> : <Loading what="Loading job" />;
}

function Submit({ starter }: { starter: Spec }) {
  useTitle("New job");
  const navigate = useNavigate();
  const [draft, setDraft] = useState<Draft>(() => draftOf(starter));
  const [others, setOthers] = useState<Record<string, Draft>>({});
  const [asked, setAsked] = useState("");
  const writable = useMe().data?.projects.filter((one) => one.may_write) ?? [];
  const project = asked || (chosenProject(writable, null)?.slug ?? "");
  const installed = useInstalledNames();
  const hasDataset = isOffline(draft.spec);
  const concerned = useMemo(() => withInstalled(sections(hasDataset), installed), [hasDataset, installed]);
  const send = useMutation({
    mutationFn: () =>
      bodyOf(
        api.POST("/api/v1/jobs", {
          params: { query: project ? { project } : {} },
          body: draft.spec,
        }),
      ),
    onSuccess: (job) => {
      void queryClient.invalidateQueries({ queryKey: ["jobs"] });
      void navigate(`/jobs/${job.id}`);
    },
  });
  /** Keeps the draft for the other kind of job and restores it when that kind is chosen again. */
  const switchTo = (title: string) => {
    const known = others[title];
    setOthers({ ...others, [starterSpecOf(hasDataset).title]: draft });
    setDraft(
      known
        ? known
        : draftOf({ ...STARTER_SPECS.find((one) => one.title === title)?.begin(), name: nameOf(draft.spec) }),
    );
    send.reset();
  };
  const refused = send.error instanceof ApiProblem ? send.error : null;
  const faults = useMemo(
    () =>
      faultsByField(
        refused?.faults ?? [],
        concerned.flatMap((section) => section.fields),
      ),
    [refused, concerned],
  );
  useShowFault(refused);
  const rest = faults.get("");
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        send.mutate();
      }}
    >
      <div className="page-head">
        <h1>New job</h1>
        <div className="button-row">
          <ProjectChoice projects={writable} value={project} onChange={setAsked} />
          <button type="submit" className="button main" disabled={send.isPending || draft.fault !== ""}>
            Submit
          </button>
        </div>
      </div>
      <StarterSpec isOffline={hasDataset} onChange={switchTo} />
      {refused && (faults.size === 0 || rest) ? <Problem error={rest ?? refused.message} /> : null}
      {refused && faults.size > 0 && !rest ? (
        <Problem
          error={`The job was not accepted: ${faults.size === 1 ? "one field has an error" : `${faults.size} fields have errors`}.`}
        />
      ) : null}
      {send.error && !refused ? <Problem error={send.error} /> : null}
      <div className="submit">
        <SpecForm
          key={String(hasDataset)}
          sections={concerned}
          spec={draft.spec}
          faults={faults}
          project={project}
          onChange={(path, value) => setDraft((old) => withValue(old, path, value))}
        />
        <section className="card yaml-card" aria-label="The job as YAML">
          <div className="card-head">
            <h2>YAML</h2>
            <span className="muted">omitted fields use their defaults</span>
          </div>
          <Suspense fallback={<Loading what="Loading editor" />}>
            <YamlEditor text={draft.text} onChange={(text) => setDraft((old) => withText(old, text))} />
          </Suspense>
          {draft.fault ? (
            <p className="fault" role="alert">
              {draft.fault}
            </p>
          ) : null}
        </section>
      </div>
    </form>
  );
}

interface StarterSpecProps {
  isOffline: boolean;
  onChange: (title: string) => void;
}

/** Chooses the kind of job. */
function StarterSpec({ isOffline, onChange }: StarterSpecProps) {
  const { title, help } = starterSpecOf(isOffline);
  return (
    <div className="toolbar">
      <Segments legend="Kind of job" values={STARTER_SPECS.map((one) => one.title)} value={title} onChange={onChange} />
      <p className="muted self-center">{help}</p>
    </div>
  );
}

function nameOf(spec: Spec): string {
  return typeof spec.name === "string" ? spec.name : "";
}

/** After a refusal, focuses the first field with an error. */
function useShowFault(refused: ApiProblem | null): void {
  useEffect(() => {
    if (refused) document.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [refused]);
}

interface ProjectChoiceProps {
  projects: readonly MyProject[];
  value: string;
  onChange: (slug: string) => void;
}

function ProjectChoice({ projects, value, onChange }: ProjectChoiceProps) {
  if (projects.length < 2) return null;
  return (
    <select aria-label="Project" value={value} onChange={(event) => onChange(event.target.value)}>
      {projects.map((project) => (
        <option key={project.slug} value={project.slug}>
          {project.name}
        </option>
      ))}
    </select>
  );
}
