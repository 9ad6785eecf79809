import { fireEvent, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { show } from "../api/testing";
import { Card, Cards } from "./Cards";

let isBroken = true;

function Fragile() {
  if (isBroken) throw new Error("A figure is missing.");
  return <Card title="Fragile">whole</Card>;
}

it("leaves the other cards as they are when one fails, and can show it again", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  show(
    <Cards>
      <Card title="First">first</Card>
      <Fragile />
      {null}
      <Card title="Last" note="a note">
        last
      </Card>
    </Cards>,
  );
  expect(screen.getAllByRole("heading").map((heading) => heading.textContent)).toEqual(["First", "Last"]);
  expect(screen.getByRole("alert").textContent).toContain("A figure is missing.");
  isBroken = false;
  fireEvent.click(screen.getByRole("button", { name: "Show it again" }));
  expect(screen.getByRole("heading", { name: "Fragile" })).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});
