import { useTitle } from "../../ui/useTitle";

export default function JobPage() {
  useTitle("Job");
  return <h1>Job</h1>;
}
