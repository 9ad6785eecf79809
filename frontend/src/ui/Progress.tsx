export function Progress({ done, all, label }: { done: number; all: number; label: string }) {
  return <progress className="progress" max={all} value={Math.min(done, all)} aria-label={label} />;
}
