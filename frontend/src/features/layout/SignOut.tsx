// Signs out with a plain form, so it works even if the rest of the page fails.
import { csrfToken } from "../../api/client";
import { Icon } from "../../ui/Icon";

export function SignOut() {
  return (
    <form method="post" action="/signout" onSubmit={(event) => fillToken(event.currentTarget)}>
      <input type="hidden" name="csrfmiddlewaretoken" />
      <button type="submit" className="icon-button" aria-label="Sign out" title="Sign out">
        <Icon name="exit" />
      </button>
    </form>
  );
}

function fillToken(form: HTMLFormElement): void {
  const field = form.elements.namedItem("csrfmiddlewaretoken");
  if (field instanceof HTMLInputElement) field.value = csrfToken();
}
