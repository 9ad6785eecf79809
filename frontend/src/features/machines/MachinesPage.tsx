import { useTitle } from "../../ui/useTitle";

export default function MachinesPage() {
  useTitle("Machines");
  return <h1>Machines</h1>;
}
