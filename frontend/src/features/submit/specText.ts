// A job spec as YAML text. A change of one field leaves the rest of the text, with its comments, as it was typed. Pure.
import { type Document, isMap, parse, parseDocument, stringify } from "yaml";
import { isMapping } from "../../values/guards";
import type { Path } from "./fields";
import { type Spec, valueAt } from "./spec";

/** A spec being written: its text, and its value as of the last text that was a spec. */
export interface Draft {
  spec: Spec;
  text: string;
  /** Why the text is not a spec. */
  fault: string;
}

export function draftOf(spec: Spec): Draft {
  return { spec, text: stringify(spec), fault: "" };
}

/** The draft after its text was typed over. */
export function withText(draft: Draft, text: string): Draft {
  try {
    const spec: unknown = parse(text) ?? {};
    if (isMapping(spec)) return { spec, text, fault: "" };
    return { ...draft, text, fault: "A job spec must be a mapping of keys to values." };
  } catch (error) {
    if (error instanceof Error) return { ...draft, text, fault: error.message.split("\n")[0] ?? "" };
    throw error;
  }
}

/** Sets a field. Undefined removes it, together with any section that becomes empty. */
export function withValue(draft: Draft, path: Path, value: unknown): Draft {
  // A text that is no spec is written anew from the last one that was.
  const document: Document = parseDocument(draft.fault ? stringify(draft.spec) : draft.text);
  if (!isMap(document.contents)) document.contents = document.createNode({});
  if (value === undefined) removed(document, path);
  else {
    opened(document, path, draft.spec);
    document.setIn(path, value);
  }
  return withText(draft, document.toString({ lineWidth: 0 }));
}

/** Makes mappings of the sections above a field, such as a section without fields or one that repeats another. */
function opened(document: Document, path: Path, spec: Spec): void {
  for (const section of sectionsAbove(path)) {
    if (isMap(document.getIn(section, true))) continue;
    const value = valueAt(spec, section);
    document.setIn(section, document.createNode(isMapping(value) ? value : {}));
  }
}

function removed(document: Document, path: Path): void {
  if (!document.hasIn(path)) return;
  document.deleteIn(path);
  for (const section of sectionsAbove(path).reverse()) {
    const left = document.getIn(section, true);
    if (isMap(left) && left.items.length === 0) document.deleteIn(section);
  }
}

/** `train.lora.rank` → `train`, `train.lora`. */
function sectionsAbove(path: Path): Path[] {
  return path.slice(0, -1).map((_, i) => path.slice(0, i + 1));
}
