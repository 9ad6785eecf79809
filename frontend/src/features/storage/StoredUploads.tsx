// Uploads by the space they use, largest first. An upload that an existing job uses cannot be deleted.
import { useState } from "react";
import { useSearchParams } from "react-router";
import { Dialog } from "../../ui/Dialog";
import { ReasonField } from "../../ui/fields/ReasonField";
import { Loading } from "../../ui/Loading";
import { Pager } from "../../ui/Pager";
import { Problem } from "../../ui/Problem";
import { bytes, moment, NONE } from "../../ui/words/format";
import { type StoredUpload, useDelete, useStoredUploads } from "./queries";
import type { TabProps } from "./tab";

const PAGE_SIZE = 25;

export function StoredUploads({ project, mayDelete }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  const uploads = useStoredUploads({ project, limit: PAGE_SIZE, offset });
  const [opened, setOpened] = useState<StoredUpload>();
  const rows = uploads.data?.results ?? [];
  const move = (to: number) => {
    address.set("offset", String(to));
    setAddress(address, { replace: true });
  };
  return (
    <>
      <Problem error={uploads.error} />
      {uploads.isPending ? <Loading what="Loading uploads" /> : null}
      {uploads.data && rows.length === 0 ? (
        <p className="none">
          Nothing has been uploaded to this project yet. <code>seamlessflow submit</code> uploads the local models and
          tasks that a job spec names; the form for a new job has upload buttons.
        </p>
      ) : null}
      {rows.length > 0 ? (
        <div className="card flush wide">
          <table className="table" data-testid="stored-uploads">
            <thead>
              <tr>
                <th>Upload</th>
                <th className="number">Size</th>
                <th>Created</th>
                <th>Last used</th>
                <th>Used by</th>
                <th>
                  <span className="visually-hidden">Delete</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((upload) => (
                <tr key={upload.id}>
                  <td title={upload.id}>{upload.name}</td>
                  <td className="number nowrap">{bytes(upload.num_bytes)}</td>
                  <td className="nowrap">{moment(Date.parse(upload.created_at))}</td>
                  <td className="nowrap">{upload.last_used_at ? moment(Date.parse(upload.last_used_at)) : NONE}</td>
                  <td>{upload.used_by || <span className="muted">no job</span>}</td>
                  <td className="number">
                    {mayDelete && !upload.used_by ? (
                      <button
                        type="button"
                        className="link-button"
                        aria-label={`Delete ${upload.name}`}
                        onClick={() => setOpened(upload)}
                      >
                        Delete…
                      </button>
                    ) : null}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={uploads.data?.count ?? 0}
        onMove={move}
        words={["Larger", "Smaller"]}
      />
      {opened ? <UploadDialog upload={opened} project={project} onClose={() => setOpened(undefined)} /> : null}
    </>
  );
}

interface DialogProps {
  upload: StoredUpload;
  project: string;
  onClose: () => void;
}

function UploadDialog({ upload, project, onClose }: DialogProps) {
  const [reason, setReason] = useState("");
  const remove = useDelete(project);
  return (
    <Dialog title={`Delete ${upload.name}?`} onClose={onClose}>
      <p>
        No job uses this upload. Deleting it frees {bytes(upload.num_bytes)} and cannot be undone, but you can upload it
        again.
      </p>
      <ReasonField reason={reason} onChange={setReason} />
      <Problem error={remove.error} />
      <div className="button-row">
        <button type="button" className="button" onClick={onClose}>
          Keep it
        </button>
        <button
          type="button"
          className="button main danger"
          disabled={remove.isPending}
          onClick={() =>
            remove.mutate({ parts: [{ kind: "upload", id: upload.id, number: null }], reason }, { onSuccess: onClose })
          }
        >
          Delete permanently
        </button>
      </div>
    </Dialog>
  );
}
