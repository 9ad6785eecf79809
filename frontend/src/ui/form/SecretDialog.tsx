// Shows something that is shown only once, such as a token, with a button to copy it.
import type { ReactNode } from "react";
import { Button } from "../Button";
import { CopyButton } from "../CopyButton";
import { Dialog } from "../Dialog";

interface Props {
  title: string;
  secret: string;
  /** Completes "Copy …". */
  name: string;
  testId: string;
  onClose: () => void;
  children: ReactNode;
}

export function SecretDialog({ title, secret, name, testId, onClose, children }: Props) {
  return (
    <Dialog title={title} onClose={onClose} isWide>
      <p>{children}</p>
      <div className="snippet">
        <pre data-testid={testId}>{secret}</pre>
        <CopyButton text={secret} label={`Copy ${name}`} />
      </div>
      <div className="button-row">
        <Button look="main" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}
