import { Icon } from "../Icon";
import { themeSet, useTheme } from "./theme";

export function ThemeToggle() {
  const other = useTheme() === "dark" ? "light" : "dark";
  return (
    <button
      type="button"
      className="icon-button"
      aria-label={`Switch to the ${other} theme`}
      title={`Switch to the ${other} theme`}
      onClick={() => themeSet(other)}
    >
      <Icon name={other === "dark" ? "moon" : "sun"} />
    </button>
  );
}
