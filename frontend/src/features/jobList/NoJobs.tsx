// Shown while there are no jobs: a job explained, and the three ways to submit one.
import { Link } from "react-router";
import { Icon } from "../../ui/Icon";
import { Snippet } from "../../ui/Snippet";

const COMMAND = "seamlessflow submit job.yaml --wait";

export function NoJobs() {
  const curl = `curl -X POST ${location.origin}/api/v1/jobs \\
  -H "Authorization: Bearer $SEAMLESSFLOW_TOKEN" \\
  -H "Content-Type: application/yaml" --data-binary @job.yaml`;
  return (
    <section className="card empty">
      <h2>No jobs yet</h2>
      <p className="muted">
        A job trains one policy. Its spec names a model, an environment that rewards it, and the machines it may use.
      </p>
      <p>
        <Link className="button main" to="/jobs/new">
          <Icon name="plus" /> Submit your first job
        </Link>
      </p>
      <h3>From the command line</h3>
      <Snippet text={COMMAND} />
      <h3>
        Over REST, with an <Link to="/tokens">API token</Link>
      </h3>
      <Snippet text={curl} />
      <p className="muted">
        The <a href="/api/v1/schema/ui">API reference</a> describes every field of a job spec.
      </p>
    </section>
  );
}
