// Formats and edits a retention policy. Pure.
import { plural } from "../../ui/words/format";
import type { PolicyChanges, Setting } from "./queries";

export const FOREVER = "forever";

/** A setting in a form: inherited, forever, or a number as typed. */
export interface Draft {
  isOwn: boolean;
  isForever: boolean;
  text: string;
}

/** `30 days`, `forever`, `yes`. */
export function valueWords(setting: Setting, value: number | null): string {
  if (value === null) return FOREVER;
  if (isSwitch(setting)) return value === 1 ? "yes" : "no";
  return plural(value, setting.unit.replace(/s$/, ""), setting.unit);
}

/** Whether the setting is either on or off. */
export function isSwitch(setting: Setting): boolean {
  return setting.unit === "" && setting.minimum === 0 && setting.maximum === 1;
}

export function draftOf(setting: Setting): Draft {
  const { is_own, value } = setting;
  return { isOwn: is_own, isForever: value === null, text: String(value ?? setting.default ?? setting.minimum) };
}

/** Why a draft cannot be sent; undefined if it can. */
export function draftFault(setting: Setting, draft: Draft): string | undefined {
  if (!draft.isOwn || draft.isForever) return undefined;
  const value = Number(draft.text);
  if (/^\d+$/.test(draft.text) && value >= setting.minimum && value <= setting.maximum) return undefined;
  return `Enter a whole number from ${setting.minimum} to ${setting.maximum}.`;
}

/** Only the settings that differ from the stored ones. */
export function changesOf(settings: readonly Setting[], drafts: Readonly<Record<string, Draft>>): PolicyChanges {
  const changes: PolicyChanges = { settings: {}, reset: [] };
  for (const setting of settings) {
    const draft = drafts[setting.name];
    if (!draft) continue;
    const value = draft.isForever ? null : Number(draft.text);
    if (!draft.isOwn) {
      if (setting.is_own) changes.reset.push(setting.name);
    } else if (!setting.is_own || value !== setting.value) changes.settings[setting.name] = value;
  }
  return changes;
}

export function isEmpty({ settings, reset }: PolicyChanges): boolean {
  return Object.keys(settings).length === 0 && reset.length === 0;
}
