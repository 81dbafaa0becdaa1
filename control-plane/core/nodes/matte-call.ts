/** What a Matte call is made of, as its caller says it. */
import type { Readable } from 'node:stream';
import type { Channels, Finishing } from '#contract/finishing.ts';
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import type { DirectTransfer } from './direct-transfer.ts';

/** Takes the result's bytes in order; `write` resolves when more may follow. */
export interface ResultSink {
  write(chunk: Uint8Array): Promise<void>;
}

/** The background's file. */
export interface BackgroundFile {
  readonly bytes: number;
  readonly format: InputFormat;
  /** As stored in the file; null: unknown. */
  readonly width: number | null;
  readonly height: number | null;
  /** Called once, after the image was sent; ended by the client. */
  readonly open: () => Promise<Readable>;
}

export interface MatteCall {
  readonly jobId: string;
  /** The claim's fence. */
  readonly attempt: number;
  readonly inputBytes: number;
  readonly inputFormat: InputFormat;
  /** As stored in the file; null: unknown. */
  readonly width: number | null;
  readonly height: number | null;
  readonly outputFormat: OutputFormat;
  /** rgba where absent. */
  readonly channels?: Channels;
  /**
   * Empty where the format or `channels` alone needs a node that finishes; the node must say in its
   * answer that it applied this. Absent: none.
   */
  readonly finishing?: Finishing;
  /** Given exactly where `finishing` has a background picture. */
  readonly background?: BackgroundFile;
  readonly sync: boolean;
  /** The node refuses where an engine would not take the image within this; 0: any wait. */
  readonly waitMsMax?: number;
  /** Called once, when the node has admitted the image; ended by the client. */
  readonly openInput: () => Promise<Readable>;
  readonly sink: ResultSink;
  /** The files travel between the node and the storage: no input is opened, the sink gets nothing. */
  readonly direct?: DirectTransfer | undefined;
  /** Cancels the attempt: its outcome is then `aborted`. */
  readonly signal: AbortSignal;
  /** The whole attempt. */
  readonly timeoutMs: number;
  readonly onAdmitted?: () => void;
}
