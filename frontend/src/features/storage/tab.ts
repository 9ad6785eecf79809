// What the storage page passes to its tabs.

export interface TabProps {
  project: string;
  /** May delete what they created; owners may delete anything. */
  mayDelete: boolean;
}
