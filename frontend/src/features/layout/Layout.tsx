// The frame around every page: navigation, connection status, theme and the signed-in user.
import type { ReactNode } from "react";
import { Link, NavLink, useLocation } from "react-router";
import { useMe } from "../../api/queries";
import { KindPatterns } from "../../charts/lanes/KindPatterns";
import { Icon } from "../../ui/Icon";
import { ThemeToggle } from "../../ui/theme/ThemeToggle";
import { zoneText } from "../../ui/words/format";
import { LineBadge } from "./LineBadge";
import { SignOut } from "./SignOut";

/** Pages that belong to the Jobs section. */
const OF_JOBS = /^\/($|jobs\/|groups\/|sessions\/)/;

export function Layout({ children }: { children: ReactNode }) {
  const me = useMe().data;
  const isOfJobs = OF_JOBS.test(useLocation().pathname);
  return (
    <div className="shell">
      <KindPatterns />
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="side">
        <Link className="brand" to="/">
          <Icon name="wave" /> SeamlessFlow
        </Link>
        <nav aria-label="Main">
          <Link to="/" {...(isOfJobs ? { className: "active", "aria-current": "true" } : {})}>
            <Icon name="jobs" /> Jobs
          </Link>
          <NavLink to="/queue">
            <Icon name="queue" /> Queue
          </NavLink>
          <NavLink to="/machines">
            <Icon name="machines" /> Machines
          </NavLink>
          <NavLink to="/shares">
            <Icon name="shares" /> Shares
          </NavLink>
          <NavLink to="/storage">
            <Icon name="disk" /> Storage
          </NavLink>
          <NavLink to="/members">
            <Icon name="people" /> Members
          </NavLink>
          <NavLink to="/tokens">
            <Icon name="key" /> API tokens
          </NavLink>
          {me?.is_staff ? (
            <a href="/admin/">
              <Icon name="shield" /> Admin
            </a>
          ) : null}
          <a href="/api/v1/schema/ui">
            <Icon name="code" /> API reference
          </a>
        </nav>
        <div className="side-end">
          <LineBadge />
          <span className="side-zone" title="Pages show times in this zone. Logs are in UTC." data-testid="zone">
            Times: {zoneText()}
          </span>
          <div className="side-user">
            <span className="side-name" title={me?.username}>
              {me?.username}
            </span>
            <ThemeToggle />
            <SignOut />
          </div>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}
