import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { addressShown, show } from "../api/testing";
import { COUNT, type Kind, NAMES, oneOf, RANGE, TEXT, useViewState } from "./useViewState";

const STATE: Kind<string> = oneOf<string>(["all", "open", "closed"]);

function Part<Value>({ name, kind, next }: { name: string; kind: Kind<Value>; next: Value }) {
  const [value, change] = useViewState(name, kind);
  return (
    <button type="button" onClick={() => change(next)}>
      {JSON.stringify(value instanceof Set ? [...value] : value)}
    </button>
  );
}

it.each([
  ["state", STATE, "?state=open", '"open"', "closed", "?state=closed"],
  ["state", STATE, "?state=nonsense", '"all"', "open", "?state=open"],
  ["state", STATE, "?state=open", '"open"', "all", ""],
  ["q", TEXT, "?q=a+b", '"a b"', "", ""],
  ["offset", COUNT, "?offset=-4", "0", 50, "?offset=50"],
  ["hidden", NAMES, "?hidden=Loss%3A+a%7CKL%3A+b", '["Loss: a","KL: b"]', new Set(["KL: b"]), "?hidden=KL%3A+b"],
  ["updates", RANGE, "?updates=1.5..20", "[1.5,20]", [2.00049, 7] as const, "?updates=2..7"],
  ["updates", RANGE, "?updates=20..3", "null", null, ""],
] as const)("keeps %s of a page in the address %#", (name, kind, before, text, next, after) => {
  show(<Part name={name} kind={kind as Kind<unknown>} next={next} />, { at: `/${before}` });
  const button = screen.getByRole("button");
  expect(button.textContent).toBe(text);
  fireEvent.click(button);
  expect(addressShown()).toBe(`/${after}`);
});

it("returns to the first page of a list, and leaves the rest of the address", () => {
  show(<Part name="state" kind={STATE} next="closed" />, { at: "/?project=lab&offset=50" });
  fireEvent.click(screen.getByRole("button"));
  expect(addressShown()).toBe("/?project=lab&state=closed");
});
