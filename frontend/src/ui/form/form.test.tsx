import { fireEvent, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { show } from "../../api/testing";
import { Check, FieldGroup, SelectField, TextField } from "./Field";
import { FormDialog } from "./FormDialog";

const ready: { isPending: boolean; error: unknown } = { isPending: false, error: null };
/** What a screen reader says of an element after its name. */
function described(element: HTMLElement): string {
  const ids = element.getAttribute("aria-describedby")?.split(" ") ?? [];
  return ids.map((id) => document.getElementById(id)?.textContent).join(" | ");
}

it("ties the label, the help and the fault of a field to its input", () => {
  show(<TextField label="Weight" help="At most 100." fault="It is no number." value="x" onChange={() => {}} />);
  const input = screen.getByRole("textbox", { name: "Weight" });
  expect(described(input)).toBe("It is no number. | At most 100.");
  expect(input.getAttribute("aria-invalid")).toBe("true");
});

it("describes nothing where there is neither help nor fault", () => {
  show(<TextField label="Weight" value="1" onChange={() => {}} />);
  const input = screen.getByRole("textbox", { name: "Weight" });
  expect(input.hasAttribute("aria-describedby")).toBe(false);
  expect(input.getAttribute("aria-invalid")).toBe("false");
});

it("ties the fault of several inputs to their group", () => {
  show(
    <FieldGroup label="Scopes" fault="Choose one.">
      <Check isChecked={false} onChange={() => {}}>
        read
      </Check>
    </FieldGroup>,
  );
  expect(described(screen.getByRole("group", { name: "Scopes" }))).toBe("Choose one.");
  expect(screen.getByRole("checkbox", { name: "read" })).toBeTruthy();
});

it("offers the words of a choice and passes its value on", () => {
  const onChange = vi.fn();
  show(<SelectField label="Role" value="a" options={[["a", "First"], ["b", "Second"]]} onChange={onChange} />); // biome-ignore format: short
  fireEvent.change(screen.getByRole("combobox", { name: "Role" }), { target: { value: "b" } });
  expect(onChange).toHaveBeenCalledWith("b");
});

function Asking({ sent = ready, onSend = vi.fn(), onClose = vi.fn(), isBlocked = false }) {
  return (
    <FormDialog
      title="Pause this job?"
      act="Pause"
      keep="Let it run"
      reason="optional"
      sent={sent}
      isBlocked={isBlocked}
      onSend={onSend}
      onClose={onClose}
    />
  );
}

it("sends the reason without the spaces around it", () => {
  const onSend = vi.fn();
  show(<Asking onSend={onSend} />);
  fireEvent.change(screen.getByRole("textbox", { name: "Reason" }), { target: { value: " too slow " } });
  fireEvent.click(screen.getByRole("button", { name: "Pause" }));
  expect(onSend).toHaveBeenCalledExactlyOnceWith("too slow");
});

it("stays open with the typed text when the platform refuses", () => {
  const onClose = vi.fn();
  const { container } = show(
    <Asking sent={{ isPending: false, error: new Error("It has ended.") }} onClose={onClose} />,
  );
  expect(screen.getByRole("dialog", { name: "Pause this job?" })).toBeTruthy();
  expect(screen.getByRole("alert").textContent).toContain("It has ended.");
  expect(onClose).not.toHaveBeenCalled();
  expect(container.querySelector("input")).toBeTruthy();
});

it.each([
  ["while it is under way", { sent: { isPending: true, error: null } }],
  ["while it lacks something", { isBlocked: true }],
])("sends nothing %s", (_, props) => {
  const onSend = vi.fn();
  const { container } = show(<Asking onSend={onSend} {...props} />);
  expect(screen.getByRole("button", { name: "Pause" })).toHaveProperty("disabled", true);
  const form = container.querySelector("form");
  if (form) fireEvent.submit(form);
  expect(onSend).not.toHaveBeenCalled();
});

it("closes by its other button and by Escape", () => {
  const onClose = vi.fn();
  show(<Asking onClose={onClose} />);
  fireEvent.click(screen.getByRole("button", { name: "Let it run" }));
  fireEvent(screen.getByRole("dialog"), new Event("cancel"));
  expect(onClose).toHaveBeenCalledTimes(2);
});
