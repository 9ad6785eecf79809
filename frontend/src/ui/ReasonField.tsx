/** Why somebody does what a dialog is about to do: recorded with their name. */

interface Props {
  reason: string;
  onChange: (reason: string) => void;
  isRequired?: boolean;
}

const MAX_REASON_LENGTH = 1000;

export function ReasonField({ reason, onChange, isRequired = false }: Props) {
  const isOptional = isRequired ? "" : "; may be empty";
  return (
    <label className="field">
      <span className="field-label">Reason</span>
      <input
        className="input"
        value={reason}
        maxLength={MAX_REASON_LENGTH}
        placeholder={`It is recorded with your name${isOptional}`}
        required={isRequired}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}
