// The fields of a form. Each ties its label, its help and its fault to its input, so that a screen reader that reaches
// the input says all three.
import { type InputHTMLAttributes, type ReactNode, useId } from "react";

/** What an input needs to be tied to the words of its field. */
export interface Tied {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
}

interface Words {
  label: ReactNode;
  help?: ReactNode;
  /** Why the value cannot be used. */
  fault?: string | undefined;
}

function useDescription({ help, fault }: Omit<Words, "label">) {
  const id = useId();
  const described = [fault ? `${id}-fault` : "", help ? `${id}-help` : ""].filter(Boolean).join(" ");
  const below = (
    <>
      {fault ? (
        <p id={`${id}-fault`} className="fault">
          {fault}
        </p>
      ) : null}
      {help ? (
        <p id={`${id}-help`} className="help">
          {help}
        </p>
      ) : null}
    </>
  );
  return { id, described: described || undefined, below };
}

interface FieldProps extends Words {
  className?: string;
  /** Names the field for tests. */
  name?: string;
  children: (tied: Tied) => ReactNode;
}

export function Field({ label, help, fault, className = "field", name, children }: FieldProps) {
  const { id, described, below } = useDescription({ help, fault });
  return (
    <div className={className} data-field={name}>
      <label className="field-label" htmlFor={id}>
        {label}
      </label>
      {children({ id, "aria-describedby": described, "aria-invalid": fault !== undefined })}
      {below}
    </div>
  );
}

/** Several inputs under one label. */
export function FieldGroup({ label, help, fault, children }: Words & { children: ReactNode }) {
  const { described, below } = useDescription({ help, fault });
  return (
    <fieldset className="field" aria-describedby={described}>
      <legend className="field-label">{label}</legend>
      {children}
      {below}
    </fieldset>
  );
}

interface TextProps extends Words, Omit<InputHTMLAttributes<HTMLInputElement>, "value" | "onChange"> {
  value: string;
  onChange: (text: string) => void;
  /** As wide as a number. */
  isShort?: boolean;
}

export function TextField({ label, help, fault, value, onChange, isShort = false, ...rest }: TextProps) {
  return (
    <Field label={label} help={help} fault={fault}>
      {(tied) => (
        <input
          {...tied}
          {...rest}
          className={isShort ? "input short" : "input"}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

interface SelectProps<Value extends string> extends Partial<Tied> {
  /** Names the choice where no words stand beside it. */
  "aria-label"?: string;
  value: Value;
  options: readonly (readonly [value: Value, words: string])[];
  onChange: (value: Value) => void;
  disabled?: boolean;
}

export function Select<Value extends string>({ options, onChange, ...rest }: SelectProps<Value>) {
  return (
    <select
      {...rest}
      onChange={({ target }) => {
        const chosen = options.find(([one]) => one === target.value);
        if (chosen) onChange(chosen[0]);
      }}
    >
      {options.map(([one, words]) => (
        <option key={one} value={one}>
          {words}
        </option>
      ))}
    </select>
  );
}

export function SelectField<Value extends string>({ label, ...rest }: Words & SelectProps<Value>) {
  return <Field label={label}>{(tied) => <Select {...tied} {...rest} />}</Field>;
}

interface CheckProps {
  isChecked: boolean;
  onChange: (isChecked: boolean) => void;
  isDisabled?: boolean;
  children: ReactNode;
}

export function Check({ isChecked, onChange, isDisabled = false, children }: CheckProps) {
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={isChecked}
        disabled={isDisabled}
        onChange={(event) => onChange(event.target.checked)}
      />
      <span>{children}</span>
    </label>
  );
}
