import { useTitle } from "../../ui/useTitle";

export default function SessionPage() {
  useTitle("Session");
  return <h1>Session</h1>;
}
