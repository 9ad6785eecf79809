// Catches errors while a page or a card renders and names the remedy. A chunk that fails to load usually means that a
// newer version was installed in the meantime; reloading the page fetches it.
import { Component, type ReactNode } from "react";
import { Button } from "./Button";
import { Problem } from "./Problem";

interface Props {
  /** A new key (another page) clears the error. */
  resetKey?: string;
  /** The error takes the space of one card, which can be shown anew without the page. */
  isCard?: boolean;
  children: ReactNode;
}

interface State {
  error: Error | null;
  resetKey: string | undefined;
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
    const again =
      this.props.isCard && !isOld ? (
        <Button look="link" onClick={() => this.setState({ error: null })}>
          Show it again
        </Button>
      ) : (
        <Button look="link" onClick={() => location.reload()}>
          Reload the page
        </Button>
      );
    const reason = isOld ? "This part of the page failed to load. A newer version may have been installed." : error;
    const problem = <Problem error={reason}>{again}</Problem>;
    return this.props.isCard ? <section className="card">{problem}</section> : problem;
  }
}
