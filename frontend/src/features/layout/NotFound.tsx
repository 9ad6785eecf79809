// What an address leads to that nothing answers to.
import { Link } from "react-router";
import { useTitle } from "../../ui/useTitle";

export function NotFound({ detail = "There is no such page." }: { detail?: string }) {
  useTitle("Not found");
  return (
    <div className="empty">
      <h1>Nothing here</h1>
      <p>{detail}</p>
      <p>
        <Link to="/">Back to the jobs</Link>
      </p>
    </div>
  );
}
