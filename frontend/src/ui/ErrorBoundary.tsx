// Catches what breaks while a page is drawn, and says what can be done. A part that cannot be loaded most often means
// that a newer version was installed meanwhile: loading the page again gets it.
import { Component, type ReactNode } from "react";
import { Problem } from "./Problem";

interface Props {
  /** Another page begins anew. */
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
      <Problem error={isOld ? "This part could not be loaded; a newer version may have been installed." : error}>
        <button type="button" className="link-button" onClick={() => location.reload()}>
          Load the page again
        </button>
      </Problem>
    );
  }
}
