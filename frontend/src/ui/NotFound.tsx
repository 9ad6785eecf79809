// Shown for an address that matches no page, or names something that does not exist.
import { Link } from "react-router";
import { useTitle } from "./useTitle";

export function NotFound({ detail = "This page does not exist." }: { detail?: string }) {
  useTitle("Not found");
  return (
    <div className="empty">
      <h1>Not found</h1>
      <p>{detail}</p>
      <p>
        <Link to="/">Back to jobs</Link>
      </p>
    </div>
  );
}
