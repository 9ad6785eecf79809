// A YAML editor in a shadow tree. There its styles are adopted style sheets, which the content policy allows; in the
// page itself they would be inline styles.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";

declare global {
  interface DocumentOrShadowRoot {
    /** Only Chromium has it on shadow roots. */
    getSelection?(): Selection | null;
  }
}

interface Props {
  text: string;
  onChange: (text: string) => void;
}

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--ink)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--series-2)" },
  { tag: tags.comment, color: "var(--muted)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "12.5px", color: "var(--ink)", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontVariantLigatures: "none", lineHeight: "1.6" },
  ".cm-gutters": { backgroundColor: "transparent", border: "none", color: "var(--muted)" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
});

export default function YamlEditor({ text, onChange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef({ text, onChange });
  latest.current = { text, onChange };

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const made = new EditorView({ root, parent: root, state: stateOf(latest) });
    view.current = made;
    return () => made.destroy();
  }, []);

  useEffect(() => {
    const shown = view.current?.state.doc.toString();
    if (shown === undefined || shown === text) return;
    view.current?.dispatch({ changes: { from: 0, to: shown.length, insert: text } });
  }, [text]);

  return <div ref={host} className="yaml" data-testid="yaml" />;
}

function stateOf(latest: { current: Props }): EditorState {
  return EditorState.create({
    doc: latest.current.text,
    extensions: [
      lineNumbers(),
      EditorView.lineWrapping,
      history(),
      keymap.of([...defaultKeymap, ...historyKeymap]),
      yaml(),
      syntaxHighlighting(colours),
      look,
      EditorView.contentAttributes.of({ "aria-label": "Job spec as YAML" }),
      EditorView.domEventHandlers({ beforeinput: typeOver }),
      EditorView.updateListener.of((update) => {
        const now = update.state.doc.toString();
        if (update.docChanged && now !== latest.current.text) latest.current.onChange(now);
      }),
    ],
  });
}

/** Types over a selection. The browser would write its colour as an inline style, which the content policy forbids. */
function typeOver(event: InputEvent, view: EditorView): boolean {
  const marked = markedRange(view);
  if (event.inputType !== "insertText" || event.data === null || marked.from === marked.to) return false;
  event.preventDefault();
  view.dispatch({
    changes: { from: marked.from, to: marked.to, insert: event.data },
    selection: { anchor: marked.from + event.data.length },
    scrollIntoView: true,
    userEvent: "input.type",
  });
  return true;
}

/** The page's own selection, which may be ahead of the editor's. Falls back to the editor's where it is unavailable. */
function markedRange(view: EditorView): { from: number; to: number } {
  const marked = view.root.getSelection?.();
  if (!marked?.anchorNode || !marked.focusNode || !view.contentDOM.contains(marked.anchorNode)) {
    return view.state.selection.main;
  }
  const ends = [
    view.posAtDOM(marked.anchorNode, marked.anchorOffset),
    view.posAtDOM(marked.focusNode, marked.focusOffset),
  ];
  return { from: Math.min(...ends), to: Math.max(...ends) };
}
