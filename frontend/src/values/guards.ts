// Guards for values whose types the generated schema leaves open: JSON of any shape, and text from a closed set. Pure.

export type Mapping = { readonly [key: string]: unknown };

export function isMapping(value: unknown): value is Mapping {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The mappings in a list. Empty if the value is not a list. */
export function mappingsIn(value: unknown): Mapping[] {
  return Array.isArray(value) ? value.filter(isMapping) : [];
}

export function isOneOf<Word extends string>(words: readonly Word[], text: string | null): text is Word {
  return words.some((word) => word === text);
}
