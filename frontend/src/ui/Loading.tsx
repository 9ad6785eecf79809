/** A quiet place holder; it appears only when waiting takes long enough to be noticed. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div className="loading" role="status">
      {what}…
    </div>
  );
}
