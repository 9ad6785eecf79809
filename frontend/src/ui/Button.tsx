// Buttons: with a word, with an icon and a word, and with an icon alone.
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Icon, type IconName } from "./Icon";

/** `main` is the purpose of a page or dialog; a `link` stands in a sentence or a row. */
type Look = "plain" | "main" | "danger" | "main danger" | "link";

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "className"> {
  look?: Look;
  icon?: IconName;
  isAtEnd?: boolean;
  children: ReactNode;
}

export function Button({ look = "plain", icon, isAtEnd = false, children, ...rest }: Props) {
  const base = look === "link" ? "link-button" : look === "plain" ? "button" : `button ${look}`;
  return (
    <button type="button" className={isAtEnd ? `${base} end` : base} {...rest}>
      {icon ? <Icon name={icon} /> : null} {children}
    </button>
  );
}

interface IconProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  icon: IconName;
  /** Its name, and its tooltip unless `title` says more. */
  label: string;
  isSmall?: boolean;
}

export function IconButton({ icon, label, isSmall = false, className = "", ...rest }: IconProps) {
  const classes = ["icon-button", isSmall ? "small" : "", className].filter(Boolean).join(" ");
  return (
    <button type="button" className={classes} aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}
