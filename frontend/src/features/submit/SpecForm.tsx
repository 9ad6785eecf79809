// The form: one fieldset per section of the spec, one input per field. An empty input shows its default as placeholder.
import { type ReactNode, useId } from "react";
import { Field } from "../../ui/form/Field";
import type { Path, Section, Field as SpecFieldFacts } from "./fields";
import { JobPicker } from "./JobPicker";
import { fallbackIn, parsed, type Spec, shown, valueAt } from "./spec";
import { UploadButton } from "./UploadButton";

interface Props {
  sections: readonly Section[];
  spec: Spec;
  faults: ReadonlyMap<string, string>;
  project: string;
  onChange: (path: Path, value: unknown) => void;
}

export function SpecForm({ sections, spec, faults, project, onChange }: Props) {
  return (
    <div className="stack">
      {sections.map((section) => {
        const isFaulty = section.fields.some((field) => faults.has(field.path.join(".")));
        return (
          <details key={section.name} className="card spec-section" open={section.isOpen || isFaulty}>
            <summary>
              <h2>{section.title}</h2>
              <span className="muted">{section.help || (section.isOpen ? "" : summaryOf(section, spec))}</span>
            </summary>
            <div className="spec-fields">
              {section.fields.map((field) => (
                <SpecField
                  key={field.path.join(".")}
                  field={field}
                  fallback={fallbackIn(spec, field)}
                  value={valueAt(spec, field.path)}
                  fault={faults.get(field.path.join("."))}
                  project={project}
                  onChange={(value) => onChange(field.path, value)}
                />
              ))}
            </div>
          </details>
        );
      })}
    </div>
  );
}

function summaryOf(section: Section, spec: Spec): string {
  const set = section.fields.filter((field) => valueAt(spec, field.path) !== undefined);
  if (set.length === 0) return "all defaults";
  return set.map((field) => `${field.path.at(-1)}: ${shown(field, valueAt(spec, field.path))}`).join(", ");
}

interface FieldProps {
  field: SpecFieldFacts;
  fallback: unknown;
  value: unknown;
  fault: string | undefined;
  project: string;
  onChange: (value: unknown) => void;
}

function SpecField({ field, fallback, value, fault, project, onChange }: FieldProps) {
  const namesId = useId();
  const isLong = field.kind === "lines";
  const label = (
    <>
      {field.label} {field.unit ? <span className="muted">({field.unit})</span> : null}
      {field.isRequired ? <span className="required"> required</span> : null}
    </>
  );
  return (
    <Field
      label={label}
      help={withCode([field.help, field.range ? `${capital(field.range)}.` : ""].filter(Boolean).join(" "))}
      fault={fault}
      className={isLong || field.upload ? "spec-field full" : "spec-field"}
      name={field.path.join(".")}
    >
      {(tied) => {
        const common = { ...tied, "aria-required": field.isRequired, className: "input" };
        return (
          <div className="input-row">
            {field.kind === "choice" || field.kind === "flag" ? (
              <ChoiceInput {...{ field, fallback, value, common, onChange }} />
            ) : isLong ? (
              <LinesInput {...{ field, value, common, onChange }} />
            ) : (
              <TextInput {...{ field, fallback, value, common, onChange }} list={namesId} />
            )}
            {field.kind === "name" ? <Suggestions id={namesId} names={field.choices} /> : null}
            {field.hasJobs ? <JobPicker value={value} onChange={onChange} /> : null}
            {field.upload ? <UploadButton kind={field.upload} project={project} onUploaded={onChange} /> : null}
          </div>
        );
      }}
    </Field>
  );
}

function Suggestions({ id, names }: { id: string; names: readonly string[] }) {
  return (
    <datalist id={id}>
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </datalist>
  );
}

interface InputProps {
  field: SpecFieldFacts;
  value: unknown;
  common: Record<string, unknown>;
  onChange: (value: unknown) => void;
}

function ChoiceInput({ field, fallback, value, common, onChange }: InputProps & { fallback: unknown }) {
  return (
    <select {...common} value={shown(field, value)} onChange={({ target }) => onChange(parsed(field, target.value))}>
      {field.isRequired ? null : <option value="">{String(fallback ?? "")} (default)</option>}
      {field.choices.map((choice) => (
        <option key={choice}>{choice}</option>
      ))}
    </select>
  );
}

/** Keeps the text as typed while its value is unchanged, because "1.", "0.90" or a trailing comma may be unfinished. */
function useTyped({ field, value, onChange }: Omit<InputProps, "common">) {
  const text = shown(field, value);
  return {
    defaultValue: text,
    ref: (element: HTMLInputElement | HTMLTextAreaElement | null) => {
      // Show changes made in the editor, unless the typed text already means the same.
      if (element && shown(field, parsed(field, element.value)) !== text) element.value = text;
    },
    onChange: ({ target }: { target: { value: string } }) => onChange(parsed(field, target.value)),
  };
}

function TextInput({ fallback, common, list, ...typed }: InputProps & { fallback: unknown; list: string }) {
  const { field } = typed;
  return (
    <input
      {...common}
      {...useTyped(typed)}
      list={field.kind === "name" ? list : undefined}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : "text"}
      placeholder={placeholderOf(field, fallback)}
    />
  );
}

function LinesInput({ common, ...typed }: InputProps) {
  const isCommand = typed.field.path.at(-1) === "command";
  return (
    <textarea
      {...common}
      {...useTyped(typed)}
      rows={3}
      placeholder={isCommand ? "One argument per line" : "One per line"}
    />
  );
}

function placeholderOf(field: SpecFieldFacts, fallback: unknown): string {
  if (fallback !== undefined && fallback !== null) return shown(field, fallback);
  if (field.upload === "archive") return "artifact://…, hub://… or a path on the server";
  if (field.upload) return "artifact://… or a path on the server";
  return field.kind === "tags" ? "any machine with the role" : "";
}

/** Renders text between backquotes as code. */
function withCode(text: string): ReactNode[] {
  // biome-ignore lint/suspicious/noArrayIndexKey: the segments of a text never change their order
  return text.split("`").map((part, i) => (i % 2 === 0 ? part : <code key={i}>{part}</code>));
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
