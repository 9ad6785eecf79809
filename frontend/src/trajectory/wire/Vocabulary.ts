// Converts token ids to text. A token may be only some bytes of a character, so texts are decoded from joined bytes.
import { vocabularyDecode } from "./wire";

const SHOWN_SPACE = "·";
const SHOWN_BREAK = "↵";
const SHOWN_TAB = "⇥";
const decoder = new TextDecoder();
const strict = new TextDecoder("utf-8", { fatal: true });

export class Vocabulary {
  readonly #ends: Uint32Array;
  readonly #bytes: Uint8Array;
  readonly #labels = new Map<number, string>();

  constructor(raw: ArrayBuffer) {
    const { ends, bytes } = vocabularyDecode(raw);
    this.#ends = ends;
    this.#bytes = bytes;
  }

  get size(): number {
    return this.#ends.length;
  }

  bytesOf(id: number): Uint8Array {
    if (id < 0 || id >= this.#ends.length) return new Uint8Array();
    return this.#bytes.subarray(id === 0 ? 0 : this.#ends[id - 1], this.#ends[id]);
  }

  /** The text of consecutive tokens. */
  text(ids: Int32Array): string {
    const pieces = Array.from(ids, (id) => this.bytesOf(id));
    const joined = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      joined.set(piece, at);
      at += piece.length;
    }
    return decoder.decode(joined);
  }

  /** A single token with visible white space, or its bytes in hexadecimal if they are not valid text. */
  label(id: number): string {
    let label = this.#labels.get(id);
    if (label === undefined) {
      label = labelOf(this.bytesOf(id)) || `#${id}`;
      this.#labels.set(id, label);
    }
    return label;
  }
}

function labelOf(bytes: Uint8Array): string {
  try {
    return strict
      .decode(bytes)
      .replaceAll(" ", SHOWN_SPACE)
      .replaceAll("\n", SHOWN_BREAK)
      .replaceAll("\t", SHOWN_TAB)
      .replaceAll(/\p{Cc}/gu, (control) => hexadecimal(control.charCodeAt(0)));
  } catch {
    return Array.from(bytes, hexadecimal).join("");
  }
}

/** As in a Python byte string. */
function hexadecimal(byte: number): string {
  return `\\x${byte.toString(16).padStart(2, "0")}`;
}
