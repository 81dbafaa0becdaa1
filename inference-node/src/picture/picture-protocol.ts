/**
 * Messages between the pool and a picture worker's process (frames over descriptor 3).
 *
 *   ready, then for each image:
 *   decode -> opened -> decoded,  finish -> finished,  release -> settled
 *
 * Any of decode and finish may be answered by `failed` instead. The pool sends one at a time, and
 * `release` only while nothing runs; a worker in which something runs is killed, not told.
 */
import type { ErrorCode } from '#contract/errors.ts';
import type { InputFormat } from '#contract/formats.ts';
import type { StageTimings } from '#contract/stages.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import type { FinishChoices } from './finish-choices.ts';
import type { Size } from './size.ts';

/** The stages of a finish. */
export type FinishTimings = Pick<StageTimings, 'refineMs' | 'encodeMs'>;

export type ToPictureWorker =
  /** One part: the file. */
  | { readonly kind: 'decode'; readonly declared?: Size; readonly modelInputs: readonly Size[] }
  /** A part for each of mattes: its alpha. */
  | {
      readonly kind: 'finish';
      readonly mattes: readonly { readonly size: Size; readonly role: MatteRole }[];
      readonly choices: FinishChoices;
    }
  /** Whatever is held of an image is to be let go. */
  | { readonly kind: 'release' };

export type FromPictureWorker =
  | { readonly kind: 'ready' }
  /** The header was read: from here on the size decides the budgets. */
  | { readonly kind: 'opened'; readonly size: Size }
  /** A part for each of modelInputs. */
  | {
      readonly kind: 'decoded';
      readonly format: InputFormat;
      readonly size: Size;
      readonly decodeMs: number;
    }
  /** One part: the file. */
  | {
      readonly kind: 'finished';
      readonly size: Size;
      readonly timings: FinishTimings;
    }
  | {
      readonly kind: 'failed';
      readonly code: ErrorCode;
      readonly detail: string;
      /** What a codec said; for the log. */
      readonly cause?: string;
    }
  /** Nothing is held any more. */
  | {
      readonly kind: 'settled';
      readonly residentBytes: number;
      /** A codec in it is broken for good: it can only be replaced. */
      readonly poisoned: boolean;
    };
