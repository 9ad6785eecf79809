// A session page: the conversation turn by turn, with the policy version of each sampled token.
import { Link, useParams } from "react-router";
import { ApiProblem, type Schemas } from "../../api/client";
import { useGroup, useJob, useSession } from "../../api/queries";
import { Card, Cards } from "../../ui/Cards";
import { Icon } from "../../ui/Icon";
import { Loading } from "../../ui/Loading";
import { NotFound } from "../../ui/NotFound";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import { Tile } from "../../ui/Tile";
import { useTitle } from "../../ui/useTitle";
import { decimal, integer } from "../../ui/words/format";
import { Conversation } from "./Conversation";
import { joinsFigure, joinsText } from "./joins";
import { shownNodes } from "./nodes";
import { lastLineText } from "./outputWords";
import { SessionOutput } from "./SessionOutput";

// Longer sessions are drawn without a box for each token.
const MAX_DRAWN_TOKENS = 4000;

export default function SessionPage() {
  const { sessionId = "" } = useParams();
  const first = useSession(sessionId, false);
  const isShort = (first.data?.num_sampled_tokens ?? Number.POSITIVE_INFINITY) <= MAX_DRAWN_TOKENS;
  const whole = useSession(sessionId, isShort);
  useTitle("Session");
  if (first.error instanceof ApiProblem && first.error.status === 404) return <NotFound detail={first.error.message} />;
  if (first.error) return <Problem error={first.error} />;
  const session = whole.data ?? first.data;
  if (!session) return <Loading what="Loading session" />;
  return <ShownSession sessionId={sessionId} session={session} />;
}

function ShownSession({ sessionId, session }: { sessionId: string; session: Schemas["SessionDetailOutput"] }) {
  const job = useJob(session.job_id).data;
  const group = useGroup(session.group_id).data;
  const nodes = shownNodes(session.nodes);
  const numVersions = new Set(session.nodes.flatMap((node) => node.versions.map((span) => span.version))).size;
  return (
    <>
      <div className="page-head">
        <div>
          <p className="crumbs">
            <Link to="/">Jobs</Link> <Icon name="chevron" />{" "}
            <Link to={`/jobs/${session.job_id}`}>{job?.name ?? "Job"}</Link> <Icon name="chevron" />{" "}
            <Link to={`/groups/${session.group_id}?session=${sessionId}`}>
              {group ? `Group ${integer(group.index)}` : "Group"}
            </Link>
          </p>
          <h1>Session {session.slot + 1}</h1>
          <p className="facts">
            <StateBadge state={session.state} />
            <span className="mono">{sessionId}</span>
            {session.attempt > 1 ? <span>attempt {session.attempt}</span> : null}
          </p>
        </div>
      </div>
      <Cards>
        <section className="tiles" aria-label="Summary">
          <Tile title="Reward" figure={decimal(session.reward)}>
            {session.is_late ? "arrived after its batch; not used for training" : session.is_timeout ? "timed out" : ""}
          </Tile>
          <Tile title="Turns" figure={integer(session.num_turns)} />
          <Tile title="Clean joins" figure={joinsFigure(session.joins)} testId="joins">
            {joinsText(session.joins)}
          </Tile>
          <Tile title="Sampled tokens" figure={integer(session.num_sampled_tokens)} />
          <Tile title="Policy versions" figure={integer(numVersions)}>
            sampled this session's tokens
          </Tile>
        </section>
        {session.truncated ? (
          <p className="muted">
            This page shows the first {integer(session.nodes.length)} nodes of the session. The{" "}
            <Link to={`/groups/${session.group_id}?session=${sessionId}`}>group page</Link> shows the whole tree.
          </p>
        ) : null}
        {session.reason ? <Reason session={session} /> : null}
        {nodes.length === 0 ? <p className="none">No turns were recorded.</p> : <Conversation nodes={nodes} />}
        <SessionOutput session={session} spec={job?.spec} />
      </Cards>
    </>
  );
}

function Reason({ session }: { session: Schemas["SessionDetailOutput"] }) {
  const lastLine = lastLineText(session);
  return (
    <Card title="Reason">
      <pre className="spec wrapped">{session.reason}</pre>
      {lastLine ? (
        <p className="last-line" data-testid="last-line">
          The last line that it printed: <code>{lastLine}</code>
        </p>
      ) : null}
    </Card>
  );
}
