// What the storage page passes to its tabs.

export interface TabProps {
  project: string;
  /** May delete their own; owners may delete anything. */
  mayDelete: boolean;
}
