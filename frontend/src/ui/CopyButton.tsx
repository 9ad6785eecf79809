import { useState } from "react";
import { Icon } from "./Icon";

const SHOWN_MS = 1500;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN_MS);
  };
  return (
    <button type="button" className="icon-button small" aria-label={label} title={label} onClick={copy}>
      {isCopied ? <span className="copied">✓</span> : <Icon name="copy" />}
    </button>
  );
}
