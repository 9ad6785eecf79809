/** The reason for the action of a dialog, recorded with the user's name. */

interface Props {
  reason: string;
  onChange: (reason: string) => void;
  isRequired?: boolean;
}

const MAX_REASON_LENGTH = 1000;

export function ReasonField({ reason, onChange, isRequired = false }: Props) {
  return (
    <label className="field">
      <span className="field-label">Reason</span>
      <input
        className="input"
        value={reason}
        maxLength={MAX_REASON_LENGTH}
        placeholder={isRequired ? "Recorded with your name" : "Optional; recorded with your name"}
        required={isRequired}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}
