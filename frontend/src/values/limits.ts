// The limits of values that people write, as the platform exports them from `core/types/limits.py`. Pure.
import limits from "../../../api_schema/limits.schema.json";

export { limits };

interface Span {
  type: string;
  minimum: number;
  maximum: number;
}

/** The number that a text gives; undefined if it is none of those accepted. */
export function numberWithin(text: string, { type, minimum, maximum }: Span): number | undefined {
  const value = Number(text);
  const isFit = type === "integer" ? Number.isInteger(value) : !Number.isNaN(value);
  return text.trim() !== "" && isFit && value >= minimum && value <= maximum ? value : undefined;
}

/** Why a number outside is refused. */
export function spanFault({ type, minimum, maximum }: Span): string {
  const [least, most] = [minimum, maximum].map((bound) => bound.toLocaleString("en-GB").replace("-", "\u2212"));
  return `Enter a ${type === "integer" ? "whole number" : "number"} from ${least} to ${most}.`;
}
