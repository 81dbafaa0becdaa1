import type { Finishing } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';

/** How a picture is finished once its mattes are there. */
export interface FinishChoices {
  /** Edge-aware, to the picture's own pixels; otherwise the matte is stretched. */
  readonly refinement: boolean;
  /** The subject's own colour at soft edges; a mask has none. */
  readonly foregroundEstimation: boolean;
  readonly outputFormat: OutputFormat;
  /** mask: one 8-bit channel, the matte at full size. */
  readonly resultKind: 'cutout' | 'mask';
  /** Undefined: the result is of the input's size and without a background. */
  readonly finishing?: Finishing | undefined;
}
