/** What a codec knows about a file before its pixels are read. */

import type { Size } from '#contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';

/** The size is oriented. */
export interface OpenedPicture extends Size {
  /**
   * Reads every pixel, once.
   * @throws ContractError PROCESSING_FAILED, NODE_INCAPABLE
   */
  readPixels(): Promise<Pick<RgbaPicture, 'rgba' | 'translucent'>>;
}
