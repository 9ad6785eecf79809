import { act, fireEvent, screen } from "@testing-library/react";
import { useState } from "react";
import { expect, it, vi } from "vitest";
import { show } from "../../api/testing";
import { SearchField } from "./SearchField";

function Searched({ passedOn }: { passedOn: (text: string) => void }) {
  const [value, setValue] = useState("old");
  const change = (text: string) => {
    passedOn(text);
    setValue(text);
  };
  return (
    <>
      <SearchField label="Search" placeholder="Name" value={value} onChange={change} />
      <button type="button" onClick={() => setValue("older")}>
        Back
      </button>
    </>
  );
}

it("passes a text on once the typing pauses, and follows the address", () => {
  vi.useFakeTimers();
  const passedOn = vi.fn();
  show(<Searched passedOn={passedOn} />);
  const input = screen.getByRole<HTMLInputElement>("searchbox", { name: "Search" });
  fireEvent.change(input, { target: { value: "n" } });
  fireEvent.change(input, { target: { value: "new" } });
  expect(passedOn).not.toHaveBeenCalled();
  act(() => void vi.advanceTimersByTime(1000));
  expect(passedOn).toHaveBeenCalledExactlyOnceWith("new");
  fireEvent.click(screen.getByRole("button"));
  expect(input.value).toBe("older");
  act(() => void vi.advanceTimersByTime(1000));
  expect(passedOn).toHaveBeenCalledOnce();
  vi.useRealTimers();
});
