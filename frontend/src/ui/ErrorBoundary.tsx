// Catches errors while a page renders and says what to do. A part that fails to load usually means that a newer version
// was installed in the meantime; reloading the page fetches it.
import { Component, type ReactNode } from "react";
import { Problem } from "./Problem";

interface Props {
  /** A new key (another page) clears the error. */
  resetKey: string;
  children: ReactNode;
}

interface State {
  error: Error | null;
  resetKey: string;
}

const LOAD_FAULT = /dynamically imported module|Importing a module script failed/i;

export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null, resetKey: this.props.resetKey };

  static getDerivedStateFromError(error: Error): Partial<State> {
    return { error };
  }

  static getDerivedStateFromProps({ resetKey }: Props, state: State): Partial<State> | null {
    return resetKey === state.resetKey ? null : { error: null, resetKey };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    const isOld = LOAD_FAULT.test(error.message);
    return (
      <Problem error={isOld ? "This part of the page failed to load. A newer version may have been installed." : error}>
        <button type="button" className="link-button" onClick={() => location.reload()}>
          Reload the page
        </button>
      </Problem>
    );
  }
}
