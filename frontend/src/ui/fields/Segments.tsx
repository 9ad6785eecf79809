// A choice among a few options side by side: radio buttons that look like a switch.
import { useId } from "react";

interface Props<Value extends string> {
  /** Names the choice for screen readers. */
  legend: string;
  values: readonly Value[];
  /** How the values are written; as they are by default. */
  words?: Readonly<Record<Value, string>>;
  value: Value;
  onChange: (value: Value) => void;
  isSmall?: boolean;
}

export function Segments<Value extends string>({
  legend,
  values,
  words,
  value,
  onChange,
  isSmall = false,
}: Props<Value>) {
  const name = useId();
  return (
    <fieldset className={isSmall ? "segments small" : "segments"}>
      <legend className="visually-hidden">{legend}</legend>
      {values.map((one) => (
        <label key={one} className={one === value ? "segment on" : "segment"}>
          <input type="radio" name={name} checked={one === value} onChange={() => onChange(one)} />
          {words?.[one] ?? one}
        </label>
      ))}
    </fieldset>
  );
}
