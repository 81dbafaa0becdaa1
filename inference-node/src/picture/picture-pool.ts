/** The node's picture workers: interface first, implementation below it. */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface DecodeRequest {
  /** The whole file. */
  readonly file: Buffer;
  /** What the caller declared; a larger image is INVALID_ARGUMENT (UNSUPPORTED…, see the contract). */
  readonly declared: Size | undefined;
  /** Sizes at which the plan's models want the picture. */
  readonly modelInputs: readonly Size[];
}

export interface DecodedPicture {
  readonly format: InputFormat;
  /** Oriented, pixels. */
  readonly width: number;
  readonly height: number;
  /** HWC RGB, one per entry of modelInputs, stretched to its size. */
  readonly modelInputs: readonly Buffer[];
  readonly decodeMs: number;
}

export interface FinishRequest {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Buffer;
  readonly alphaSize: Size;
  readonly outputFormat: OutputFormat;
  /** mask: one 8-bit channel, the matte at full size. */
  readonly resultKind: 'cutout' | 'mask';
}

export interface FinishedPicture {
  readonly file: Buffer;
  readonly width: number;
  readonly height: number;
  readonly refineMs: number;
  readonly encodeMs: number;
}

/**
 * One worker, held for one image from decode to encode. Errors: ContractError
 * UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, PROCESSING_FAILED (the image's fault, not
 * retryable: also a time or memory budget exceeded), NODE_INCAPABLE (codec not here),
 * PICTURE_WORKER_LOST (died, and not by a budget).
 */
export interface PictureLease {
  readonly waitMs: number;
  decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture>;
  finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture>;
  /** Gives the worker back, or replaces it where an image is still inside. Idempotent. */
  release(): void;
}

export interface PictureCapabilities {
  readonly inputFormats: readonly InputFormat[];
  readonly outputFormats: readonly OutputFormat[];
  /** Of a JPEG XL input or output on this node; 0: none. */
  readonly jxlPixelsMax: number;
}

export interface PicturePoolSnapshot {
  readonly workers: number;
  readonly busy: number;
  readonly waiting: number;
  /** Running means, ms. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
}

export interface PicturePool {
  readonly capabilities: PictureCapabilities;
  /** Waits for a worker; sync before async. Rejects with the signal's reason, or NODE_UNAVAILABLE at close. */
  acquire(priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease>;
  snapshot(): PicturePoolSnapshot;
  close(graceMs: number): Promise<void>;
}
