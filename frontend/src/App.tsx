// Routes. Each page is a module of its own, loaded when it is first opened.
import { lazy, Suspense } from "react";
import { Navigate, Route, Routes, useLocation } from "react-router";
import { Layout } from "./features/layout/Layout";
import { ErrorBoundary } from "./ui/ErrorBoundary";
import { Loading } from "./ui/Loading";
import { NotFound } from "./ui/NotFound";

const JobsPage = lazy(() => import("./features/jobList/JobsPage"));
const JobPage = lazy(() => import("./features/job/JobPage"));
const SubmitPage = lazy(() => import("./features/submit/SubmitPage"));
const MachinesPage = lazy(() => import("./features/machines/MachinesPage"));
const QueuePage = lazy(() => import("./features/queue/QueuePage"));
const SharesPage = lazy(() => import("./features/shares/SharesPage"));
const MembersPage = lazy(() => import("./features/members/MembersPage"));
const TokensPage = lazy(() => import("./features/tokens/TokensPage"));
const StoragePage = lazy(() => import("./features/storage/StoragePage"));
const GroupPage = lazy(() => import("./features/groups/GroupPage"));
const SessionPage = lazy(() => import("./features/sessions/SessionPage"));

export function App() {
  const { pathname, search } = useLocation();
  return (
    <Layout>
      <ErrorBoundary resetKey={pathname}>
        <Suspense fallback={<Loading />}>
          <Routes>
            <Route path="/" element={<JobsPage />} />
            <Route path="/jobs" element={<Navigate to={{ pathname: "/", search }} replace />} />
            <Route path="/jobs/new" element={<SubmitPage />} />
            <Route path="/jobs/:jobId/*" element={<JobPage />} />
            <Route path="/groups/:groupId" element={<GroupPage />} />
            <Route path="/sessions/:sessionId" element={<SessionPage />} />
            <Route path="/queue" element={<QueuePage />} />
            <Route path="/shares" element={<SharesPage />} />
            <Route path="/machines" element={<MachinesPage />} />
            <Route path="/storage/*" element={<StoragePage />} />
            <Route path="/members" element={<MembersPage />} />
            <Route path="/tokens" element={<TokensPage />} />
            <Route path="*" element={<NotFound />} />
          </Routes>
        </Suspense>
      </ErrorBoundary>
    </Layout>
  );
}
