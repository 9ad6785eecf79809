import { useTitle } from "../../ui/useTitle";

export default function GroupPage() {
  useTitle("Group");
  return <h1>Group</h1>;
}
