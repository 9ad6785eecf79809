/** A one-line search field for a list, which passes the text on once the user pauses typing. */
import { useEffect, useRef, useState } from "react";
import { Icon } from "../Icon";

const PAUSE_MS = 250;

interface Props {
  label: string;
  placeholder: string;
  value: string;
  onChange: (text: string) => void;
}

export function SearchField({ label, placeholder, value, onChange }: Props) {
  const [text, setText] = useState(value);
  const passedOn = useRef(value);
  useEffect(() => {
    // Something else changed the value, such as the browser's back button.
    if (value !== passedOn.current) setText(value);
    passedOn.current = value;
  }, [value]);
  useEffect(() => {
    if (text === passedOn.current) return;
    const timer = setTimeout(() => {
      passedOn.current = text;
      onChange(text);
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  });
  return (
    <label className="search">
      <Icon name="search" />
      <input
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </label>
  );
}
