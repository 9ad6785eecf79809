// Identifiers as people see them: `job_` and 26 characters for the 128 bits of a UUID (`core/types/ids.py` on the
// server).
const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const NUM_CHARACTERS = 26n;
const BITS = 5n;

export function shownId(kind: "pha" | "mac" | "ses", uuid: string): string {
  const number = BigInt(`0x${uuid.replaceAll("-", "")}`);
  let text = "";
  for (let index = NUM_CHARACTERS - 1n; index >= 0n; index--)
    text += ALPHABET[Number((number >> (BITS * index)) & 31n)];
  return `${kind}_${text}`;
}
