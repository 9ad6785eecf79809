// A state of a page (its filter, search, zoom, position in a list), stored in the address, so that a link
// shows the same and a reload keeps it. The usual value is left out of the address.
import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";

/** How a value is written in the address. The empty text stands for the usual value. */
export interface Kind<Value> {
  read: (text: string) => Value;
  write: (value: Value) => string;
}

export const TEXT: Kind<string> = { read: (text) => text, write: (text) => text };

export const COUNT: Kind<number> = {
  read: (text) => Math.max(Math.trunc(Number(text)) || 0, 0),
  write: (count) => (count > 0 ? String(count) : ""),
};

const BETWEEN_NAMES = "|";

export const NAMES: Kind<ReadonlySet<string>> = {
  read: (text) => new Set(text === "" ? [] : text.split(BETWEEN_NAMES)),
  write: (names) => [...names].join(BETWEEN_NAMES),
};

const BETWEEN_ENDS = "..";
const DIGITS = 3;

export const RANGE: Kind<readonly [first: number, last: number] | null> = {
  read: (text) => {
    const [first = "", last = ""] = text.split(BETWEEN_ENDS);
    const isRange = first.trim() !== "" && Number(first) < Number(last);
    return isRange ? [Number(first), Number(last)] : null;
  },
  write: (range) => range?.map((end) => String(Number(end.toFixed(DIGITS)))).join(BETWEEN_ENDS) ?? "",
};

/** One of a few words. The first is the usual one, and stands for every word that is not among them. */
export function oneOf<Word extends string>(words: readonly [Word, ...Word[]]): Kind<Word> {
  const [usual] = words;
  return {
    read: (text) => words.find((word) => word === text) ?? usual,
    write: (word) => (word === usual ? "" : word),
  };
}

/** Another filter or search begins at the first page of a list. */
const POSITION = ["offset"];

/**
 * The value of a parameter of the address, and a function that changes it. A change removes the parameters `cleared`.
 * `kind` must be a constant. Two changes at once would overwrite each other.
 */
export function useViewState<Value>(
  name: string,
  kind: Kind<Value>,
  cleared: readonly string[] = POSITION,
): [Value, (next: Value) => void] {
  const [address, setAddress] = useSearchParams();
  const text = address.get(name) ?? "";
  const value = useMemo(() => kind.read(text), [kind, text]);
  const change = useCallback(
    (next: Value) => {
      const written = kind.write(next);
      setAddress(
        (old) => {
          const changed = new URLSearchParams(old);
          for (const gone of cleared) changed.delete(gone);
          if (written === "") changed.delete(name);
          else changed.set(name, written);
          return changed;
        },
        { replace: true },
      );
    },
    [setAddress, kind, name, cleared],
  );
  return [value, change];
}
