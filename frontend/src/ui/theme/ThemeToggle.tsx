import { IconButton } from "../Button";
import { themeSet, useTheme } from "./theme";

export function ThemeToggle() {
  const other = useTheme() === "dark" ? "light" : "dark";
  return (
    <IconButton
      icon={other === "dark" ? "moon" : "sun"}
      label={`Switch to the ${other} theme`}
      onClick={() => themeSet(other)}
    />
  );
}
