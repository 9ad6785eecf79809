import { useTitle } from "../../ui/useTitle";

export default function JobsPage() {
  useTitle("Jobs");
  return <h1>Jobs</h1>;
}
