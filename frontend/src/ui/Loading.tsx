/** A quiet placeholder that appears only if loading takes long enough to be noticed. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div className="loading" role="status">
      {what}…
    </div>
  );
}
