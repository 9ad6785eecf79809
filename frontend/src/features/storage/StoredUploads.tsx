// Uploads by the space they use, largest first. An upload that an existing job uses cannot be deleted.
import { useState } from "react";
import { Button } from "../../ui/Button";
import { FormDialog } from "../../ui/form/FormDialog";
import type { Columns } from "../../ui/table/columns";
import { PagedTable, usePage } from "../../ui/table/PagedTable";
import { bytes, moment, NONE } from "../../ui/words/format";
import { type StoredUpload, useDelete, useStoredUploads } from "./queries";
import type { TabProps } from "./tab";

const PAGE_SIZE = 25;

export function StoredUploads({ project, mayDelete }: TabProps) {
  const { page } = usePage(PAGE_SIZE);
  const [opened, setOpened] = useState<StoredUpload>();
  return (
    <>
      <PagedTable
        read={useStoredUploads({ project, ...page })}
        what="uploads"
        none={
          <p className="none">
            Nothing has been uploaded to this project yet. <code>seamlessflow submit</code> uploads the local models and
            tasks that a job spec names; the form for a new job has upload buttons.
          </p>
        }
        limit={PAGE_SIZE}
        words={["Larger", "Smaller"]}
        columns={columnsOf(mayDelete, setOpened)}
        keyOf={(upload) => upload.id}
        testId="stored-uploads"
      />
      {opened ? <UploadDialog upload={opened} project={project} onClose={() => setOpened(undefined)} /> : null}
    </>
  );
}

function columnsOf(mayDelete: boolean, onOpen: (upload: StoredUpload) => void): Columns<StoredUpload> {
  return [
    { head: "Upload", title: (upload) => upload.id, cell: (upload) => upload.name },
    { head: "Size", isNumber: true, className: "nowrap", cell: (upload) => bytes(upload.num_bytes) },
    { head: "Created", className: "nowrap", cell: (upload) => moment(Date.parse(upload.created_at)) },
    {
      head: "Last used",
      className: "nowrap",
      cell: (upload) => (upload.last_used_at ? moment(Date.parse(upload.last_used_at)) : NONE),
    },
    { head: "Used by", cell: (upload) => upload.used_by || <span className="muted">no job</span> },
    {
      head: "Delete",
      isHeadHidden: true,
      isNumber: true,
      cell: (upload) =>
        mayDelete && !upload.used_by ? (
          <Button look="link" aria-label={`Delete ${upload.name}`} onClick={() => onOpen(upload)}>
            Delete…
          </Button>
        ) : null,
    },
  ];
}

interface DialogProps {
  upload: StoredUpload;
  project: string;
  onClose: () => void;
}

function UploadDialog({ upload, project, onClose }: DialogProps) {
  const remove = useDelete(project);
  const parts = [{ kind: "upload", id: upload.id, number: null }];
  return (
    <FormDialog
      title={`Delete ${upload.name}?`}
      act="Delete permanently"
      keep="Keep it"
      isDanger
      reason="optional"
      sent={remove}
      onSend={(reason) => remove.mutate({ parts, reason }, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>
        No job uses this upload. Deleting it frees {bytes(upload.num_bytes)} and cannot be undone, but you can upload it
        again.
      </p>
    </FormDialog>
  );
}
