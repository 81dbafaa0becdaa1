/** Attempts whose files go straight between node and storage, as runs of jobs know them. */

import type { DirectTransfer } from '@matting/nodes/matte-client-call.ts';
import type { Offer } from '@matting/nodes/node-link.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { ResultBlob } from './result-blob.ts';

export type DirectNode = Pick<Offer, 'bootId' | 'directOrigins'>;

export interface DirectAttempts {
  /** Undefined: this attempt is streamed. */
  begin(node: DirectNode, order: DirectAttemptOrder): DirectAttempt | undefined;
  /** The node got and put its files. */
  worked(node: DirectNode): void;
  /**
   * The node could not: the job's further attempts are streamed, and others of the node for now.
   * @param node undefined: the way is not the node's fault.
   */
  failed(node: DirectNode | undefined, jobId: string): void;
}

export interface DirectAttemptOrder {
  readonly jobId: string;
  readonly inputBlob: string;
  /** null: there is none. */
  readonly backgroundBlob: string | null;
  /** The file of hints; null: there is none. */
  readonly hintsBlob: string | null;
  /** The name has the claim's fence, so that no other holder of the job has the same. */
  readonly resultBlob: string;
  readonly format: OutputFormat;
  /** If nothing is finished, the result must have this size: the input's, as stored or turned. */
  readonly size: { readonly width: number; readonly height: number } | undefined;
  readonly timeoutMs: number;
}

export interface DirectAttempt extends DirectTransfer, ResultBlob {
  /** Something may come under the result's name: it is not for another attempt. */
  readonly placed: boolean;
  /** A file of the job is in no storage that signs, whatever the node can reach. */
  readonly elsewhere: boolean;
}
