// Uploads a file and puts its address into the field beside it.
import { useMutation } from "@tanstack/react-query";
import { useRef } from "react";
import { csrfToken, problemOf } from "../../api/client";
import { Icon } from "../../ui/Icon";
import { isMapping } from "../../values/guards";

interface Props {
  kind: "archive" | "file";
  project: string;
  onUploaded: (uri: string) => void;
}

export function UploadButton({ kind, project, onUploaded }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const send = useMutation({ mutationFn: (file: File) => upload(file, kind, project), onSuccess: onUploaded });
  const word = kind === "archive" ? "Upload archive" : "Upload file";
  return (
    <>
      <input
        ref={input}
        type="file"
        hidden
        accept={kind === "archive" ? ".tar,.tar.gz,.tgz" : ".jsonl"}
        onChange={(event) => {
          const file = event.target.files?.[0];
          if (file) send.mutate(file);
          event.target.value = "";
        }}
      />
      <button type="button" className="button" disabled={send.isPending} onClick={() => input.current?.click()}>
        <Icon name="upload" /> {send.isPending ? "Uploading…" : word}
      </button>
      {send.error ? (
        <span className="fault" role="alert">
          {send.error.message}
        </span>
      ) : null}
    </>
  );
}

async function upload(file: File, kind: "archive" | "file", project: string): Promise<string> {
  const query = new URLSearchParams({ unpack: String(kind === "archive"), ...(project ? { project } : {}) });
  const body = new FormData();
  body.set("file", file);
  const headers = { "X-CSRFToken": csrfToken() };
  const response = await fetch(`/api/v1/uploads?${query}`, { method: "POST", body, headers });
  // A proxy that refuses a large file answers without JSON.
  const answer: unknown = await response.json().catch(() => null);
  if (response.ok && isMapping(answer) && typeof answer.uri === "string") return answer.uri;
  throw problemOf(response.status, answer);
}
