// A dialog that asks before it does something: its fields, an optional reason, the platform's refusal, and two buttons.
// It stays open until its request has succeeded, so that a refusal loses no typed text.
import { type ReactNode, useState } from "react";
import { limits } from "../../values/limits";
import { Button } from "../Button";
import { Dialog } from "../Dialog";
import { Problem } from "../Problem";
import { TextField } from "./Field";

interface Props {
  title: string;
  /** The words of the button that does it, and of the one that does not. */
  act: string;
  keep?: string;
  isDanger?: boolean;
  /** What is sent: whether it is under way, and why it was refused. */
  sent: { isPending: boolean; error: unknown };
  /** The form cannot be sent as it is. */
  isBlocked?: boolean;
  /** Asks for a reason, which is recorded with the user's name. */
  reason?: "optional" | "required";
  isWide?: boolean;
  onSend: (reason: string) => void;
  onClose: () => void;
  children?: ReactNode;
}

export function FormDialog(props: Props) {
  const { title, act, keep = "Cancel", isDanger = false, sent, isBlocked = false, isWide = false } = props;
  const [reason, setReason] = useState("");
  return (
    <Dialog title={title} onClose={props.onClose} isWide={isWide}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBlocked && !sent.isPending) props.onSend(reason.trim());
        }}
      >
        {props.children}
        {props.reason ? (
          <TextField
            label="Reason"
            value={reason}
            onChange={setReason}
            maxLength={limits.Reason.maxLength}
            required={props.reason === "required"}
            placeholder={props.reason === "required" ? "Recorded with your name" : "Optional; recorded with your name"}
          />
        ) : null}
        <Problem error={sent.error} />
        <div className="button-row">
          <Button onClick={props.onClose}>{keep}</Button>
          <Button type="submit" look={isDanger ? "main danger" : "main"} disabled={isBlocked || sent.isPending}>
            {act}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
