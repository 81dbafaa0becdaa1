/** The files of a job, as a call to a node names them. */
import type { Job, JobInput } from '../../domain/job.ts';
import type { MatteCall } from '../../nodes/matte-call.ts';
import type { BlobStore } from '../../storage/blob-store.ts';

/** What is sent to a node, stored. */
export interface Pictures {
  readonly input: JobInput;
  /** null: none. */
  readonly background: JobInput | null;
}

/** Nothing for a job that every node can do. */
export function finishingOf(
  { channels, finishing }: Pick<Job, 'channels' | 'finishing'>,
  background: JobInput | null,
  blobs: Pick<BlobStore, 'openRead'>,
): Pick<MatteCall, 'channels' | 'finishing' | 'background'> {
  if (finishing === null) return {};
  if (background === null) return { channels, finishing };
  const open = () => blobs.openRead(background.blob);
  return { channels, finishing, background: { ...background, open } };
}
