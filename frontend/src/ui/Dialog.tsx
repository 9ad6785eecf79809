// A modal dialog. The browser's own element keeps the focus inside, closes on Escape and returns the focus.
import { type ReactNode, useEffect, useId, useRef } from "react";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  isWide?: boolean;
}

export function Dialog({ title, onClose, children, isWide = false }: Props) {
  const host = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const dialog = host.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={host} aria-labelledby={titleId} className={isWide ? "wide-dialog" : ""} onCancel={onClose}>
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}
