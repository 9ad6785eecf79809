// The form: one section per part of the spec, one input per field. An empty input shows its default as placeholder.
import { type ReactNode, useId } from "react";
import type { Field, Section } from "./fields";
import { JobPicker } from "./JobPicker";
import { fallbackIn, parsed, type Spec, shown, valueAt, withValue } from "./spec";
import { UploadButton } from "./UploadButton";

interface Props {
  sections: readonly Section[];
  spec: Spec;
  faults: ReadonlyMap<string, string>;
  project: string;
  onChange: (spec: Spec) => void;
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
                  onChange={(value) => onChange(withValue(spec, field.path, value))}
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
  field: Field;
  fallback: unknown;
  value: unknown;
  fault: string | undefined;
  project: string;
  onChange: (value: unknown) => void;
}

function SpecField({ field, fallback, value, fault, project, onChange }: FieldProps) {
  const id = useId();
  const helpId = `${id}-help`;
  const text = shown(field, value);
  const common = {
    id,
    "aria-describedby": helpId,
    "aria-invalid": fault !== undefined,
    "aria-required": field.isRequired,
    className: "input",
    list: field.kind === "name" ? `${id}-names` : undefined,
  };
  const isLong = field.kind === "lines";
  return (
    <div className={isLong || field.upload ? "spec-field full" : "spec-field"} data-field={field.path.join(".")}>
      <label htmlFor={id}>
        {field.label} {field.unit ? <span className="muted">({field.unit})</span> : null}
        {field.isRequired ? <span className="required"> required</span> : null}
      </label>
      <div className="input-row">
        {field.kind === "choice" || field.kind === "flag" ? (
          <select {...common} value={text} onChange={(event) => onChange(parsed(field, event.target.value))}>
            {field.isRequired ? null : <option value="">{String(fallback ?? "")} (default)</option>}
            {field.choices.map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
        ) : isLong ? (
          <LinesInput field={field} value={value} common={common} onChange={onChange} />
        ) : (
          <TextInput field={field} fallback={fallback} text={text} common={common} onChange={onChange} />
        )}
        {field.kind === "name" ? <Suggestions id={`${id}-names`} names={field.choices} /> : null}
        {field.hasJobs ? <JobPicker value={value} onChange={onChange} /> : null}
        {field.upload ? <UploadButton kind={field.upload} project={project} onUploaded={onChange} /> : null}
      </div>
      {fault ? <p className="fault">{fault}</p> : null}
      <p id={helpId} className="help">
        {withCode([field.help, field.range ? `${capital(field.range)}.` : ""].filter(Boolean).join(" "))}
      </p>
    </div>
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
  field: Field;
  common: Record<string, unknown>;
  onChange: (value: unknown) => void;
}

/** Keeps the text as typed while its value is unchanged, because "1.", "0.90" or a trailing comma may be unfinished. */
function TextInput({ field, fallback, text, common, onChange }: InputProps & { fallback: unknown; text: string }) {
  return (
    <input
      {...common}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : "text"}
      placeholder={placeholderOf(field, fallback)}
      key={`${field.path.join(".")}`}
      defaultValue={text}
      ref={(element) => {
        // Show changes made in the editor, unless the typed text already means the same.
        if (element && shown(field, parsed(field, element.value)) !== text) element.value = text;
      }}
      onChange={(event) => onChange(parsed(field, event.target.value))}
    />
  );
}

function LinesInput({ field, value, common, onChange }: InputProps & { value: unknown }) {
  const text = shown(field, value);
  return (
    <textarea
      {...common}
      rows={3}
      placeholder={field.path.at(-1) === "command" ? "One argument per line" : "One per line"}
      defaultValue={text}
      ref={(element) => {
        if (element && shown(field, parsed(field, element.value)) !== text) element.value = text;
      }}
      onChange={(event) => onChange(parsed(field, event.target.value))}
    />
  );
}

function placeholderOf(field: Field, fallback: unknown): string {
  if (fallback !== undefined && fallback !== null) return shown(field, fallback);
  if (field.upload === "archive") return "artifact://…, hub://… or a path on the server";
  if (field.upload) return "artifact://… or a path on the server";
  return field.kind === "tags" ? "any machine with the role" : "";
}

/** Renders text between backquotes as code. */
function withCode(text: string): ReactNode[] {
  // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text never change places
  return text.split("`").map((part, i) => (i % 2 === 0 ? part : <code key={i}>{part}</code>));
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
